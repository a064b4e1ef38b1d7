// The operators that torch sees, in the namespace of the variant.
#include "operators.h"
#include "sampling_operators.h"
#include "stack_operators.h"

#define ANYCHIP_LIBRARY(name, m) STABLE_TORCH_LIBRARY(name, m)
#define ANYCHIP_IMPLEMENT(name, m) STABLE_TORCH_LIBRARY_IMPL(name, CPU, m)

using namespace anychip;

ANYCHIP_LIBRARY(ANYCHIP_NAMESPACE, m) {
  m.def("pack(Tensor values) -> Tensor");
  m.def("pack_codes(Tensor codes, Tensor scales, Tensor? minima, int bits) -> Tensor");
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
  m.def("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor)");
  m.def("gate(Tensor x, int activation) -> Tensor");
  m.def(
      "norm_linear(Tensor x, Tensor? residual, Tensor norm, float eps, Tensor weight, Tensor? bias) -> (Tensor, "
      "Tensor)");
  m.def("greedy(Tensor logits) -> (Tensor, Tensor)");
  m.def(
      "sample(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor numbers) -> (Tensor, "
      "Tensor)");
  m.def("gated_mlp(Tensor x, Tensor gate_up, Tensor down, int activation) -> Tensor");
  m.def(
      "kv_write(Tensor k, Tensor v, Tensor(a!) k_plane, Tensor(b!) v_plane, Tensor positions, Tensor query_start, "
      "Tensor table) -> ()");
  m.def(
      "rotate_and_write(Tensor q, Tensor k, Tensor v, Tensor? q_norm, Tensor? k_norm, float eps, Tensor positions, "
      "Tensor cos_sin, Tensor(a!) k_plane, Tensor(b!) v_plane, Tensor query_start, Tensor table) -> Tensor");
  m.def(
      "paged_attention(Tensor q, Tensor k_plane, Tensor v_plane, Tensor positions, Tensor query_start, Tensor table, "
      "int window, float scale, float softcap, Tensor? sinks) -> Tensor");
  m.def("new_stack(int[] shape, float eps, Tensor[] tensors, Tensor final_norm) -> int");
  m.def(
      "run_stack(int stack, Tensor x, Tensor positions, Tensor cos_sin, Tensor query_start, Tensor[] planes, "
      "Tensor[] tables, int[] groups, int[] windows) -> Tensor");
  m.def("drop_stack(int stack) -> ()");
}

ANYCHIP_IMPLEMENT(ANYCHIP_NAMESPACE, m) {
  m.impl("pack", TORCH_BOX(&pack));
  m.impl("pack_codes", TORCH_BOX(&pack_quantized));
  m.impl("linear", TORCH_BOX(&linear));
  m.impl("rms_norm", TORCH_BOX(&rms_norm));
  m.impl("add_rms_norm", TORCH_BOX(&add_rms_norm));
  m.impl("gate", TORCH_BOX(&gate));
  m.impl("norm_linear", TORCH_BOX(&norm_linear));
  m.impl("greedy", TORCH_BOX(&greedy));
  m.impl("sample", TORCH_BOX(&sample));
  m.impl("gated_mlp", TORCH_BOX(&gated_mlp));
  m.impl("kv_write", TORCH_BOX(&kv_write));
  m.impl("rotate_and_write", TORCH_BOX(&rope_and_write));
  m.impl("paged_attention", TORCH_BOX(&attention));
  m.impl("run_stack", TORCH_BOX(&run_stack));
}

STABLE_TORCH_LIBRARY_IMPL(ANYCHIP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("new_stack", TORCH_BOX(&new_stack));
  m.impl("drop_stack", TORCH_BOX(&drop_stack));
}
