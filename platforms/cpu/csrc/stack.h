// All layers of a pre-norm decoder in one call: the residual stream and everything between products stay in float32.
#pragma once

#include <memory>
#include <vector>

#include "attention.h"
#include "matmul.h"
#include "rows.h"

namespace anychip {

struct Layer {
  const float* input_norm;
  Weight qkv;
  const float* qkv_bias;
  const float* q_norm;
  const float* k_norm;
  Weight output;
  const float* output_bias;
  const float* mlp_norm;
  Weight gate_up;
  Weight down;
};

struct Shape {
  int64_t hidden;
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  int64_t inner;
  float eps;
  Activation activation;
};

// Buffers of a step, kept from step to step by the thread that runs them.
struct Workspace {
  Scratch stream, normed, delta, projected, attended, inner;
  Prepared prepared;
};

// stream += delta where given, then normed = norm(stream), for each token.
template <class Out>
inline void add_and_norm(float* stream, const float* delta, const float* weight, int64_t tokens, int64_t hidden,
                         float eps, Out* normed) {
  in_parallel(tokens, ROW_GRAIN, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      if (delta) add_row(stream + t * hidden, delta + t * hidden, hidden, stream + t * hidden);
      norm_row(stream + t * hidden, weight, hidden, eps, normed + t * hidden);
    }
  });
}

// One layer on `stream` and `delta` [tokens][hidden], still to be added; leaves the same of the next layer.
template <class T>
inline void run_layer(const Shape& shape, const Layer& layer, const Pages<T>& pages, const Places& places,
                      const Turns& turns, int64_t tokens, Workspace& work, const float* delta) {
  const int64_t queries = shape.heads * shape.dim, keys = shape.kv_heads * shape.dim, width = queries + 2 * keys;
  float* stream = work.stream.take<float>(tokens * shape.hidden);
  float* normed = work.normed.take<float>(tokens * shape.hidden);
  float* result = work.delta.take<float>(tokens * shape.hidden);
  float* projected = work.projected.take<float>(tokens * width);
  float* attended = work.attended.take<float>(tokens * queries);
  float* inner = work.inner.take<float>(tokens * shape.inner);
  const auto product = [&](const Weight& weight, const float* x, float* y, const float* bias) {
    const Activations ready = work.prepared.prepare(weight, x, weight.inputs(), tokens);
    multiply(weight, ready, Output<float>{y, weight.rows(), bias});
  };
  add_and_norm(stream, delta, layer.input_norm, tokens, shape.hidden, shape.eps, normed);
  product(layer.qkv, normed, projected, layer.qkv_bias);
  const Heads<float> q{projected, width, shape.dim, shape.heads}, k{projected + queries, width, shape.dim, shape.kv_heads},
      v{projected + queries + keys, width, shape.dim, shape.kv_heads};
  rotate_and_write(q, k, v, layer.q_norm, layer.k_norm, shape.eps, turns, pages, places, projected, width);
  const Form form{1.0f / std::sqrt(static_cast<float>(shape.dim)), 0, nullptr};
  paged_attention(Queries<float>{projected, width, shape.dim, shape.heads}, pages, places, form, attended);
  product(layer.output, attended, result, layer.output_bias);
  add_and_norm(stream, result, layer.mlp_norm, tokens, shape.hidden, shape.eps, normed);
  const Activations ready = work.prepared.prepare(layer.gate_up, normed, shape.hidden, tokens);
  multiply_gated(layer.gate_up, ready, shape.activation, inner, shape.inner);
  product(layer.down, inner, result, nullptr);
}

}  // namespace anychip
