// All layers of a pre-norm decoder in one call: the residual stream and everything between products stay in float32.
#pragma once

#include <cstring>
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

// Buffers of a step, kept from step to step; a team shares what `reserve` made.
struct Workspace {
  Scratch stream, normed, delta, projected, attended, inner, partial;
  Prepared prepared;
  std::vector<Work> attention;  // one a table and window

  void reserve(const Shape& shape, const std::vector<Layer>& layers, int64_t tokens) {
    const int64_t queries = shape.heads * shape.dim;
    stream.take<float>(tokens * shape.hidden);
    normed.take<float>(tokens * shape.hidden);
    delta.take<float>(tokens * shape.hidden);
    projected.take<float>(tokens * (queries + 2 * shape.kv_heads * shape.dim));
    attended.take<float>(tokens * queries);
    inner.take<float>(tokens * shape.inner);
    int64_t parts = 0;
    for (const Work& work : attention) parts = std::max(parts, work.parts);
    partial.take<float>(parts * running_size(shape.heads / shape.kv_heads, shape.dim));
    for (const Layer& layer : layers)
      for (const Weight* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
        prepared.reserve(*weight, tokens);
  }
};

// stream += delta where given, then normed = norm(stream), for this member's tokens.
template <class Out>
inline void add_and_norm(const Member& member, float* stream, const float* delta, const float* weight, int64_t tokens,
                         int64_t hidden, float eps, Out* normed) {
  member.split(tokens, ROW_GRAIN, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      if (delta) add_row(stream + t * hidden, delta + t * hidden, hidden, stream + t * hidden);
      norm_row(stream + t * hidden, weight, hidden, eps, normed + t * hidden);
    }
  });
}

// Tokens that are asked for, ascending; all of them where `at` is null.
struct Wanted {
  const int32_t* at;
  int64_t count;
};

constexpr int64_t COLUMN_GRAIN = 64;  // columns worth a thread

// Move the wanted rows of x to the front, in order: a row is read before another takes its place.
inline void keep_rows(const Member& member, float* x, int64_t width, const Wanted& wanted) {
  member.split(width, COLUMN_GRAIN, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < wanted.count; ++i)
      if (wanted.at[i] != i)
        std::memcpy(x + i * width + first, x + wanted.at[i] * width + first,
                    static_cast<size_t>(last - first) * sizeof(float));
  });
}

// One layer on `stream` and `delta` [tokens][hidden], still to be added where `first` is not set; leaves the same of the
// next layer, or of the wanted tokens alone. All members call it, and it returns when all are done.
template <class T>
inline void run_layer(const Member& member, const Shape& shape, const Layer& layer, const Pages<T>& pages,
                      const Places& places, const Work& attention, const Turns& turns, int64_t tokens, bool first,
                      const Wanted& wanted, Workspace& work) {
  const int64_t queries = shape.heads * shape.dim, keys = shape.kv_heads * shape.dim, width = queries + 2 * keys;
  float* stream = work.stream.take<float>(tokens * shape.hidden);
  float* normed = work.normed.take<float>(tokens * shape.hidden);
  float* delta = work.delta.take<float>(tokens * shape.hidden);
  float* projected = work.projected.take<float>(tokens * width);
  float* attended = work.attended.take<float>(tokens * queries);
  float* inner = work.inner.take<float>(tokens * shape.inner);
  const auto product = [&](const Weight& weight, const float* x, float* y, const float* bias) {
    const Activations ready = work.prepared.prepare(member, weight, x, weight.inputs(), tokens);
    multiply(member, weight, ready, Output<float>{y, weight.rows(), bias});
    member.wait();
  };
  add_and_norm(member, stream, first ? nullptr : delta, layer.input_norm, tokens, shape.hidden, shape.eps, normed);
  member.wait();
  product(layer.qkv, normed, projected, layer.qkv_bias);
  const Heads<float> q{projected, width, shape.dim, shape.heads};
  const Heads<float> k{projected + queries, width, shape.dim, shape.kv_heads};
  const Heads<float> v{projected + queries + keys, width, shape.dim, shape.kv_heads};
  rotate_and_write(member, q, k, v, layer.q_norm, layer.k_norm, shape.eps, turns, pages, places, projected, width);
  member.wait();
  const Form form{1.0f / std::sqrt(static_cast<float>(shape.dim)), 0, nullptr};
  const Queries<float> turned{projected, width, shape.dim, shape.heads};
  paged_attention(member, turned, pages, places, attention, form, work.partial.take<float>(0), attended);
  member.wait();
  if (wanted.at) {
    keep_rows(member, attended, queries, wanted);
    keep_rows(member, stream, shape.hidden, wanted);
    member.wait();
    tokens = wanted.count;
  }
  product(layer.output, attended, delta, layer.output_bias);
  add_and_norm(member, stream, delta, layer.mlp_norm, tokens, shape.hidden, shape.eps, normed);
  member.wait();
  const Activations ready = work.prepared.prepare(member, layer.gate_up, normed, shape.hidden, tokens);
  multiply_gated(member, layer.gate_up, ready, shape.activation, inner, shape.inner);
  member.wait();
  product(layer.down, inner, delta, nullptr);
}

}  // namespace anychip
