// The paged cache of one layer, laid out so that both products of attention read packed matrices.
//
//   k [blocks][heads][dim / 2 pairs][block_size columns]      a page times queries gives scores, tokens side by side
//   v [blocks][heads][block_size / 2 pairs][dim columns]      weights times a page give values, elements side by side
#pragma once

#include "simd.h"

namespace anychip {

// Where the tokens of a step lie.
struct Places {
  const int32_t* positions;    // [tokens]
  const int32_t* query_start;  // [rows + 1]
  const int32_t* table;        // [rows][width]
  int64_t rows;
  int64_t width;
  int64_t window;  // 0: everything before
};

template <class T>
struct Pages {
  T* k;
  T* v;
  int64_t heads;
  int64_t block_size;
  int64_t dim;
  int64_t value_dim;

  T* key_page(int64_t block, int64_t head) const { return k + (block * heads + head) * block_size * dim; }
  T* value_page(int64_t block, int64_t head) const { return v + (block * heads + head) * block_size * value_dim; }

  void write_key(int64_t block, int64_t entry, int64_t head, const float* x) const {
    T* page = key_page(block, head);
    for (int64_t d = 0; d < dim; ++d) put(page[d / 2 * 2 * block_size + pair_element<T>(d % 2, entry, block_size)], x[d]);
  }
  void write_value(int64_t block, int64_t entry, int64_t head, const float* x) const {
    T* pair = value_page(block, head) + entry / 2 * 2 * value_dim;
    for (int64_t d = 0; d < value_dim; ++d) put(pair[pair_element<T>(entry % 2, d, value_dim)], x[d]);
  }

 private:
  static void put(float& to, float x) { to = x; }
  static void put(bf16& to, float x) { to = narrow(x); }
};

}  // namespace anychip
