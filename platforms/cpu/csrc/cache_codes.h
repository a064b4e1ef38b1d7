// Pages of int8 codes with a scale for each head of each token, unpacked a few at a time where products read them.
//
//   k [blocks][heads][codes as bfloat16 pages have them: dim / 2 pairs, block_size columns][block_size scales, float]
//   v likewise, block_size / 2 pairs of value_dim columns
#pragma once

#include "cache.h"
#include "threads.h"

namespace anychip {

constexpr int64_t SCALE_BYTES = 4;  // of an entry

template <>
struct Pages<int8_t> {
  int8_t* k;
  int8_t* v;
  int64_t heads;
  int64_t block_size;
  int64_t dim;
  int64_t value_dim;

  int8_t* key_page(int64_t block, int64_t head) const { return page(k, block, head, dim); }
  int8_t* value_page(int64_t block, int64_t head) const { return page(v, block, head, value_dim); }

  void write_key(int64_t block, int64_t entry, int64_t head, const float* x) const {
    int8_t* to = key_page(block, head);
    const float inverse = write_scale(to + block_size * dim, entry, x, dim);
    for (int64_t d = 0; d < dim; ++d) to[d / 2 * 2 * block_size + 2 * entry + d % 2] = code(x[d] * inverse);
  }
  void write_value(int64_t block, int64_t entry, int64_t head, const float* x) const {
    int8_t* to = value_page(block, head);
    const float inverse = write_scale(to + block_size * value_dim, entry, x, value_dim);
    for (int64_t d = 0; d < value_dim; ++d) to[entry / 2 * 2 * value_dim + 2 * d + entry % 2] = code(x[d] * inverse);
  }

 private:
  int8_t* page(int8_t* plane, int64_t block, int64_t head, int64_t size) const {
    return plane + (block * heads + head) * block_size * (size + SCALE_BYTES);
  }
  // What is no number makes the scale none.
  static float write_scale(int8_t* scales, int64_t entry, const float* x, int64_t size) {
    float largest = 0, broken = 0;
    for (int64_t d = 0; d < size; ++d) largest = std::max(largest, std::fabs(x[d])), broken += x[d] * 0;
    const float scale = largest / 127.0f + broken;
    std::memcpy(scales + SCALE_BYTES * entry, &scale, sizeof(scale));
    return scale > 0 ? 1.0f / scale : 0.0f;
  }
  static int8_t code(float x) {
    return static_cast<int8_t>(x >= -127.0f ? std::lrintf(std::min(x, 127.0f)) : x < -127.0f ? -127 : 0);
  }
};

// What the products of one step of a task read: pages of D, in which the step begins at `origin` less than it does.
template <class D>
struct Window {
  Pages<D> pages;
  const int32_t* blocks;
  int64_t head;
  int64_t origin;
  const float* key_scales;  // [step], null where entries are no codes
  const float* value_scales;
};

template <class T>
inline Window<T> open_window(const Pages<T>& pages, const int32_t* blocks, int64_t head, int64_t, int64_t, int64_t,
                             int64_t, Scratch&) {
  return {pages, blocks, head, 0, nullptr, nullptr};
}

// Codes are whole numbers below 256, which bfloat16 holds exactly.
inline void unpack(const int8_t* codes, int64_t count, bf16* to) {
  for (int64_t i = 0; i < count; i += W) store(to + i, load(codes + i));
}

inline Window<bf16> open_window(const Pages<int8_t>& pages, const int32_t* blocks, int64_t head, int64_t s0,
                                int64_t step, int64_t low, int64_t high, Scratch& held) {
  static constexpr int32_t IN_ORDER[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int64_t size = pages.block_size, key_codes = size * pages.dim, value_codes = size * pages.value_dim;
  float* scales = held.take<float>(2 * step + step * (pages.dim + pages.value_dim) / 2);
  auto* keys = reinterpret_cast<bf16*>(scales + 2 * step);
  bf16* values = keys + step * pages.dim;
  for (int64_t at = s0, page = 0; at < s0 + step; at += size, ++page) {
    if (at >= high || at + size <= low) continue;
    const int8_t* k = pages.key_page(blocks[at / size], head);
    const int8_t* v = pages.value_page(blocks[at / size], head);
    unpack(k, key_codes, keys + page * key_codes);
    unpack(v, value_codes, values + page * value_codes);
    std::memcpy(scales + page * size, k + key_codes, static_cast<size_t>(size * SCALE_BYTES));
    std::memcpy(scales + step + page * size, v + value_codes, static_cast<size_t>(size * SCALE_BYTES));
  }
  for (int64_t at = s0; at < s0 + step; ++at)
    if (at < low || at >= high) scales[at - s0] = scales[step + at - s0] = 0;
  return {{keys, values, 1, size, pages.dim, pages.value_dim}, IN_ORDER, 0, s0, scales, scales + step};
}

// x[i] *= y[i] for i below `count`, a multiple of W.
inline void scale_row(float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += W) store(x + i, mul(load(x + i), load(y + i)));
}

}  // namespace anychip
