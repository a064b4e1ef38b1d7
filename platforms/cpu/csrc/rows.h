// What is done to each token alone: normalization, rotation, writing to the cache.
#pragma once

#include "cache.h"
#include "matmul.h"
#include "threads.h"

namespace anychip {

constexpr int64_t ROW_GRAIN = 16;  // tokens worth a thread

template <class X>
inline float square_sum(const X* x, int64_t size) {
  vf squares = zero();
  int64_t i = 0;
  for (; i + W <= size; i += W) {
    const vf value = load(x + i);
    squares = fma(value, value, squares);
  }
  float total = sum(squares);
  for (; i < size; ++i) total += widen(x[i]) * widen(x[i]);
  return total;
}

// out = x / sqrt(mean(x^2) + eps) * weight
template <class X, class G, class Out>
inline void norm_row(const X* x, const G* weight, int64_t size, float eps, Out* out) {
  const float scale = 1.0f / std::sqrt(square_sum(x, size) / static_cast<float>(size) + eps);
  int64_t i = 0;
  for (; i + W <= size; i += W) store(out + i, mul(mul(load(x + i), set1(scale)), load(weight + i)));
  for (; i < size; ++i) put(out + i, widen(x[i]) * scale * widen(weight[i]));
}

// total = x + delta
template <class X, class D, class Out>
inline void add_row(const X* x, const D* delta, int64_t size, Out* total) {
  int64_t i = 0;
  for (; i + W <= size; i += W) store(total + i, add(load(x + i), load(delta + i)));
  for (; i < size; ++i) put(total + i, widen(x[i]) + widen(delta[i]));
}

template <class X>
inline void copy_row(const X* x, int64_t size, float* out) {
  int64_t i = 0;
  for (; i + W <= size; i += W) store(out + i, load(x + i));
  for (; i < size; ++i) out[i] = widen(x[i]);
}

// Turn the first `rotary` elements: pairs (i, i + rotary / 2), cosines then sines in `turns`.
inline void rotate_row(float* x, const float* turns, int64_t rotary) {
  const int64_t half = rotary / 2;
  int64_t i = 0;
  for (; i + W <= half; i += W) {
    const vf low = load(x + i), high = load(x + half + i), cosine = load(turns + i), sine = load(turns + half + i);
    store(x + i, sub(mul(low, cosine), mul(high, sine)));
    store(x + half + i, fma(high, cosine, mul(low, sine)));
  }
  for (; i < half; ++i) {
    const float low = x[i], high = x[half + i], cosine = turns[i], sine = turns[half + i];
    x[i] = low * cosine - high * sine;
    x[half + i] = high * cosine + low * sine;
  }
}

// Heads of a step: [tokens][heads][dim] with strides.
template <class X>
struct Heads {
  const X* data;
  int64_t token_stride;
  int64_t head_stride;
  int64_t count;

  const X* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

struct Turns {
  const float* table;  // [positions][rotary]
  int64_t rotary;
};

// Call body(token, row of the batch) for this member's tokens.
template <class Body>
inline void each_token(const Member& member, const Places& places, const Body& body) {
  const int64_t tokens = places.query_start[places.rows];
  member.split(tokens, ROW_GRAIN, [&](int64_t first, int64_t last) {
    int64_t row = 0;
    for (int64_t token = first; token < last; ++token) {
      while (token >= places.query_start[row + 1]) ++row;
      body(token, row);
    }
  });
}

template <class X, class T>
inline void write_cache(const Member& member, const Heads<X>& k, const Heads<X>& v, const Pages<T>& pages,
                        const Places& places) {
  each_token(member, places, [&](int64_t token, int64_t row) {
    thread_local Scratch held;
    float* wide = held.take<float>(std::max(pages.dim, pages.value_dim));
    const int64_t position = places.positions[token];
    const int64_t block = places.table[row * places.width + position / pages.block_size];
    for (int64_t head = 0; head < pages.heads; ++head) {
      copy_row(k.at(token, head), pages.dim, wide);
      pages.write_key(block, position % pages.block_size, head, wide);
      copy_row(v.at(token, head), pages.value_dim, wide);
      pages.write_value(block, position % pages.block_size, head, wide);
    }
  });
}

// Normalize the heads where weights are given, rotate, write k and v; turned queries to out [tokens][heads][dim], which
// may be where they came from.
template <class X, class G, class T, class Out>
inline void rotate_and_write(const Member& member, const Heads<X>& q, const Heads<X>& k, const Heads<X>& v,
                             const G* q_norm, const G* k_norm, float eps, const Turns& turns, const Pages<T>& pages, const Places& places, Out* out,
                             int64_t out_stride) {
  const int64_t dim = pages.dim;
  each_token(member, places, [&](int64_t token, int64_t row) {
    thread_local Scratch held;
    float* wide = held.take<float>(std::max(dim, pages.value_dim));
    const int64_t position = places.positions[token];
    const int64_t block = places.table[row * places.width + position / pages.block_size];
    const float* turn = turns.table + position * turns.rotary;
    for (int64_t head = 0; head < q.count; ++head) {
      copy_row(q.at(token, head), dim, wide);
      if (q_norm) norm_row(wide, q_norm, dim, eps, wide);
      rotate_row(wide, turn, turns.rotary);
      Out* to = out + token * out_stride + head * dim;
      int64_t d = 0;
      for (; d + W <= dim; d += W) store(to + d, load(wide + d));
      for (; d < dim; ++d) put(to + d, wide[d]);
    }
    for (int64_t head = 0; head < pages.heads; ++head) {
      copy_row(k.at(token, head), dim, wide);
      if (k_norm) norm_row(wide, k_norm, dim, eps, wide);
      rotate_row(wide, turn, turns.rotary);
      pages.write_key(block, position % pages.block_size, head, wide);
      copy_row(v.at(token, head), pages.value_dim, wide);
      pages.write_value(block, position % pages.block_size, head, wide);
    }
  });
}

}  // namespace anychip
