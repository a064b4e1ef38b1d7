// The operators that torch sees, in the namespace of the variant.
#include "operators.h"
#include "program_operators.h"
#include "sampling_operators.h"
#include "stack_operators.h"
#include "token_operators.h"

#define ANYCHIP_LIBRARY(name, m) STABLE_TORCH_LIBRARY(name, m)
#define ANYCHIP_IMPLEMENT(name, m) STABLE_TORCH_LIBRARY_IMPL(name, CPU, m)

using namespace anychip;

// The operators that a step is made of, and their functions.
#define ANYCHIP_STEP_OPERATORS(each)     \
  each("linear", linear)                 \
  each("rms_norm", rms_norm)             \
  each("add_rms_norm", add_rms_norm)     \
  each("gate", gate)                     \
  each("norm_linear", norm_linear)       \
  each("greedy", greedy)                 \
  each("sample", sample)                 \
  each("gated_mlp", gated_mlp)           \
  each("kv_write", kv_write)             \
  each("rotate_and_write", rope_and_write) \
  each("paged_attention", attention)     \
  each("embedding", embedding)           \
  each("take_highest", take_highest)     \
  each("take_drawn", take_drawn)         \
  each("run_stack", run_stack)

#define ANYCHIP_CALLABLE(name, function) {name, &call<&function>},
constexpr Named CALLABLE[] = {ANYCHIP_STEP_OPERATORS(ANYCHIP_CALLABLE)};

void note_call(int64_t program, std::string name, std::vector<Tensor> tensors, std::vector<int64_t> words,
               std::vector<double> numbers) {
  add_call(CALLABLE, program, name, tensors, words, numbers);
}

// Run a program on its bound inputs; null, or what went wrong. No operator of torch, whose way here is long.
extern "C" __attribute__((visibility("default"))) const char* anychip_run_bound(int64_t program) noexcept {
  thread_local std::string failure;
  try {
    run_bound(*programs().find(program));
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}

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
      "Tensor[] tables, int[] groups, int[] windows, Tensor? wanted) -> Tensor");
  m.def("drop_stack(int stack) -> ()");
  m.def("embedding(Tensor token_ids, Tensor table) -> Tensor");
  m.def("take_highest(Tensor logits, Tensor rows, Tensor(a!) newest) -> Tensor");
  m.def(
      "take_drawn(Tensor logits, Tensor keys, Tensor positions, Tensor temperature, Tensor top_k, Tensor top_p, Tensor "
      "min_p, Tensor rows, Tensor(a!) newest) -> Tensor");
  m.def("new_program() -> int");
  m.def("note_call(int program, str name, Tensor[] tensors, int[] words, float[] numbers) -> ()");
  m.def("end_program(int program, int[] words) -> ()");
  m.def("run_program(int program, Tensor[] inputs) -> Tensor[]");
  m.def("bind_program(int program, Tensor[] inputs, Tensor chosen) -> ()");
  m.def("program_left(int program) -> Tensor[]");
  m.def("drop_program(int program) -> ()");
}

ANYCHIP_IMPLEMENT(ANYCHIP_NAMESPACE, m) {
  m.impl("pack", TORCH_BOX(&pack));
  m.impl("pack_codes", TORCH_BOX(&pack_quantized));
  m.impl("run_program", TORCH_BOX(&run_program));
  m.impl("bind_program", TORCH_BOX(&bind_program));
#define ANYCHIP_OPERATOR(name, function) m.impl(name, TORCH_BOX(&function));
  ANYCHIP_STEP_OPERATORS(ANYCHIP_OPERATOR)
}

STABLE_TORCH_LIBRARY_IMPL(ANYCHIP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("new_stack", TORCH_BOX(&new_stack));
  m.impl("drop_stack", TORCH_BOX(&drop_stack));
  m.impl("new_program", TORCH_BOX(&new_program));
  m.impl("note_call", TORCH_BOX(&note_call));
  m.impl("end_program", TORCH_BOX(&end_program));
  m.impl("program_left", TORCH_BOX(&program_left));
  m.impl("drop_program", TORCH_BOX(&drop_program));
}
