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
  Scratch stream, delta, projected, attended, inner, partial;
  Prepared prepared;
  std::vector<Work> attention;  // one a table and window

  void reserve(const Shape& shape, const std::vector<Layer>& layers, int64_t tokens) {
    const int64_t queries = shape.heads * shape.dim;
    stream.take<float>(tokens * shape.hidden);
    delta.take<float>(tokens * shape.hidden);
    projected.take<float>(tokens * (queries + 2 * shape.kv_heads * shape.dim));
    int64_t parts = 0;
    for (const Work& work : attention) parts = std::max(parts, work.parts);
    partial.take<float>(parts * running_size(shape.heads / shape.kv_heads, shape.dim));
    for (const Layer& layer : layers) {
      for (const Weight* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
        prepared.reserve(*weight, tokens);
      made_for(layer.output, attended, tokens, [](auto*, int64_t) {});
      made_for(layer.down, inner, tokens, [](auto*, int64_t) {});
    }
  }

  // Call make(out, stride) to write activations for `weight`, in bfloat16 where it takes that as it is; those.
  template <class Make>
  static Activations made_for(const Weight& weight, Scratch& buffer, int64_t tokens, const Make& make) {
    if (takes_bfloat16(weight)) {
      const int64_t stride = padded(weight.inputs());
      auto* out = buffer.take<bf16>(tokens * stride);
      make(out, stride);
      return {tokens, stride, nullptr, out, {}};
    }
    auto* out = buffer.take<float>(tokens * weight.inputs());
    make(out, weight.inputs());
    return {tokens, weight.inputs(), out, nullptr, {}};
  }
};

static_assert(ROW_GRAIN == FEW, "who copies a token into the stream is who normalizes it first");

// The residual stream: tokens [hidden], to which `delta` is added where given, before each is normalized.
struct Stream {
  float* values;
  const float* delta;
  int64_t hidden;
  float eps;

  template <class Out>
  void normalize(int64_t token, const float* weight, Out* normed) const {
    float* row = values + token * hidden;
    if (delta) add_row(row, delta + token * hidden, hidden, row);
    norm_row(row, weight, hidden, eps, normed);
  }
};

// Tokens that are asked for, ascending; all of them where `at` is null.
struct Wanted {
  const int32_t* at;
  int64_t count;
};

constexpr int64_t COLUMN_GRAIN = 64;  // columns worth a thread

// Move the wanted rows of x [tokens][stride] to the front, in order: a row is read before another takes its place.
template <class T>
inline void keep_rows(const Member& member, T* x, int64_t stride, int64_t width, const Wanted& wanted) {
  member.split(width, COLUMN_GRAIN, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < wanted.count; ++i)
      if (wanted.at[i] != i)
        std::memcpy(x + i * stride + first, x + wanted.at[i] * stride + first,
                    static_cast<size_t>(last - first) * sizeof(T));
  });
}

// One layer on `stream` and `delta` [tokens][hidden], still to be added where `first` is not set; leaves the same of the
// next layer, or of the wanted tokens alone. All members call it, and it returns when all are done.
template <class T>
inline void run_layer(const Member& member, const Shape& shape, const Layer& layer, const Pages<T>& pages,
                      const Places& places, const Work& attention, const Turns& turns, int64_t tokens, bool first,
                      const Wanted& wanted, Workspace& work) {
  const int64_t queries = shape.heads * shape.dim, keys = shape.kv_heads * shape.dim, width = queries + 2 * keys;
  float* values = work.stream.take<float>(tokens * shape.hidden);
  float* delta = work.delta.take<float>(tokens * shape.hidden);
  float* projected = work.projected.take<float>(tokens * width);
  const auto normed = [&](const float* added, const float* norm, const Weight& weight) {
    const Stream stream{values, added, shape.hidden, shape.eps};
    return work.prepared.prepare(member, weight, tokens, [&](int64_t token) {
      thread_local Scratch held;
      float* row = held.take<float>(shape.hidden);
      stream.normalize(token, norm, row);
      return row;
    });
  };
  const auto complete = [&](const Weight& weight, const Activations& x) {
    member.wait();
    return x.narrow ? x : work.prepared.prepare(member, weight, x.wide, x.stride, x.rows);
  };
  const auto product = [&](const Weight& weight, const Activations& x, float* y, const float* bias) {
    multiply(member, weight, x, Output<float>{y, weight.rows(), bias});
    member.wait();
  };
  product(layer.qkv, normed(first ? nullptr : delta, layer.input_norm, layer.qkv), projected, layer.qkv_bias);
  const Heads<float> q{projected, width, shape.dim, shape.heads};
  const Heads<float> k{projected + queries, width, shape.dim, shape.kv_heads};
  const Heads<float> v{projected + queries + keys, width, shape.dim, shape.kv_heads};
  rotate_and_write(member, q, k, v, layer.q_norm, layer.k_norm, shape.eps, turns, pages, places, projected, width);
  member.wait();
  const Form form{1.0f / std::sqrt(static_cast<float>(shape.dim)), 0, nullptr};
  const Queries<float> turned{projected, width, shape.dim, shape.heads};
  Activations attended = Workspace::made_for(layer.output, work.attended, tokens, [&](auto* out, int64_t stride) {
    paged_attention(member, turned, pages, places, attention, form, work.partial.take<float>(0), out, stride);
    if (!wanted.at) return;
    member.wait();
    keep_rows(member, out, stride, queries, wanted);
    keep_rows(member, values, shape.hidden, shape.hidden, wanted);
  });
  attended.rows = tokens = wanted.count;
  product(layer.output, complete(layer.output, attended), delta, layer.output_bias);
  const Activations gates = normed(delta, layer.mlp_norm, layer.gate_up);
  const Activations inner = Workspace::made_for(layer.down, work.inner, tokens, [&](auto* out, int64_t stride) {
    multiply_gated(member, layer.gate_up, gates, shape.activation, out, stride);
  });
  product(layer.down, complete(layer.down, inner), delta, nullptr);
}

}  // namespace anychip
