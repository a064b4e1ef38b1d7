// The innermost product: a few rows of activations times a strip of columns, all sums in registers.
#pragma once

#include "simd.h"

namespace anychip {

#ifdef ANYCHIP_AVX512
constexpr int MAX_ROWS = 12;
constexpr int WIDE = 2;  // vectors of a strip, with few rows
constexpr int NARROW = 2;  // and with many
#else
constexpr int MAX_ROWS = 6;
constexpr int WIDE = 4;
constexpr int NARROW = 2;
#endif

// Pairs of rows of a matrix, in one piece or in several that follow each other: pages of a cache.
template <class T>
struct Panels {
  const T* const* pieces;
  int64_t count;
  int64_t pairs;    // of a piece
  int64_t columns;  // of the matrix, a strip of which is read
  int64_t ahead;    // bytes from what is read to what is fetched for later
};

// Sums of M rows and V vectors of columns, in U parts that do not wait for each other.
template <int U, int M, int V>
struct Sums {
  vf at[U][M][V];

  [[gnu::always_inline]] void start(const float* c, int64_t ldc, bool accumulate) {
    repeat<M>(ANYCHIP_EACH(m) {
      repeat<V>(ANYCHIP_EACH(v) {
        at[0][m][v] = accumulate ? load(c + m * ldc + v * W) : zero();
        repeat<U - 1>(ANYCHIP_EACH(u) { at[u + 1][m][v] = zero(); });
      });
    });
  }
  [[gnu::always_inline]] void finish(float* c, int64_t ldc) {
    repeat<M>(ANYCHIP_EACH(m) {
      repeat<V>(ANYCHIP_EACH(v) {
        vf total = at[0][m][v];
        repeat<U - 1>(ANYCHIP_EACH(u) { total = add(total, at[u + 1][m][v]); });
        store(c + m * ldc + v * W, total);
      });
    });
  }
};

// Call step(part) for every pair of all pieces, U parts in turn; `b` is where it reads.
template <int U, class T, class Step>
[[gnu::always_inline]] inline void for_pairs(const Panels<T>& panels, int64_t offset, const T*& b, const Step& step) {
  for (int64_t piece = 0; piece < panels.count; ++piece) {
    b = panels.pieces[piece] + offset;
    for (int64_t k = 0; k + U <= panels.pairs; k += U) repeat<U>(step);
    for (int64_t k = panels.pairs / U * U; k < panels.pairs; ++k) step(std::integral_constant<int, 0>{});
  }
}

// c[m][0..V*W) (+)= sum over all pairs of rows of b, V*W columns from `column`. `a` is row-major [M][lda].
template <class T, int M, int V>
[[gnu::noinline]] void product(const float* a, int64_t lda, const Panels<T>& panels, int64_t column, float* c,
                               int64_t ldc, bool accumulate) {
  constexpr int U = M * V <= 4 ? 2 : 1;
  const int64_t columns = panels.columns, ahead = panels.ahead;
  const T* b = nullptr;
  Sums<U, M, V> sums;
  sums.start(c, ldc, accumulate);
  const auto step = ANYCHIP_EACH(u) {
    __builtin_prefetch(reinterpret_cast<const char*>(b) + ahead, 0, 2);
    if (V * W * 2 * sizeof(T) > 64) __builtin_prefetch(reinterpret_cast<const char*>(b) + ahead + 64, 0, 2);
    repeat<2>(ANYCHIP_EACH(row) {
      vf weights[V];
      repeat<V>(ANYCHIP_EACH(v) { weights[v] = load_pair_row<row>(b + pair_column<T>(v * W), columns); });
      repeat<M>(ANYCHIP_EACH(m) {
        const vf x = set1(a[m * lda + row]);
        repeat<V>(ANYCHIP_EACH(v) { sums.at[u][m][v] = fma(x, weights[v], sums.at[u][m][v]); });
      });
    });
    a += 2;
    b += 2 * columns;
  };
  for_pairs<U>(panels, pair_column<T>(column), b, step);
  sums.finish(c, ldc);
}

#ifdef ANYCHIP_BF16
// The same with activations in bfloat16, two to a lane.
template <class T, int M, int V>
[[gnu::noinline]] void product(const bf16* a, int64_t lda, const Panels<T>& panels, int64_t column, float* c,
                               int64_t ldc, bool accumulate) {
  constexpr int U = M == 1 ? 4 : M <= 3 ? 2 : 1;
  const int64_t columns = panels.columns, ahead = panels.ahead;
  const T* b = nullptr;
  Sums<U, M, V> sums;
  sums.start(c, ldc, accumulate);
  const auto step = ANYCHIP_EACH(u) {
    __builtin_prefetch(reinterpret_cast<const char*>(b) + ahead, 0, 2);
    if (V > 1) __builtin_prefetch(reinterpret_cast<const char*>(b) + ahead + 64, 0, 2);
    __m512bh weights[V];
    repeat<V>(ANYCHIP_EACH(v) { weights[v] = (__m512bh)_mm512_loadu_si512(b + pair_column<T>(v * W)); });
    repeat<M>(ANYCHIP_EACH(m) {
      int32_t both;
      std::memcpy(&both, a + m * lda, 4);
      const __m512bh x = (__m512bh)_mm512_set1_epi32(both);
      repeat<V>(ANYCHIP_EACH(v) { sums.at[u][m][v] = _mm512_dpbf16_ps(sums.at[u][m][v], x, weights[v]); });
    });
    a += 2;
    b += 2 * columns;
  };
  for_pairs<U>(panels, pair_column<T>(column), b, step);
  sums.finish(c, ldc);
}
#endif

// Pick the instance for `rows`, at most M.
template <class A, class T, int V, int M = MAX_ROWS>
inline void product_of(int rows, const A* a, int64_t lda, const Panels<T>& b, int64_t column, float* c, int64_t ldc,
                       bool accumulate) {
  if constexpr (M > 0) {
    if (rows == M)
      product<T, M, V>(a, lda, b, column, c, ldc, accumulate);
    else
      product_of<A, T, V, M - 1>(rows, a, lda, b, column, c, ldc, accumulate);
  }
}

// c [rows][ldc] (+)= a [rows][lda] times the first `width` columns (a multiple of W) of b.
template <class A, class T>
[[gnu::noinline]] void strip_product(int64_t rows, const A* a, int64_t lda, const Panels<T>& b, int64_t width,
                                     float* c, int64_t ldc, bool accumulate) {
  const int64_t tiles = (rows + MAX_ROWS - 1) / MAX_ROWS;
  int64_t column = 0;
  while (column < width) {
    const int64_t left = (width - column) / W;
    const int vectors = rows <= 3 && left >= WIDE ? WIDE : left >= NARROW ? NARROW : 1;
    for (int64_t tile = 0, first = 0; tile < tiles; ++tile) {
      const int count = static_cast<int>((rows - first) / (tiles - tile));
      const A* x = a + first * lda;
      float* y = c + first * ldc + column;
      if (vectors == NARROW)
        product_of<A, T, NARROW>(count, x, lda, b, column, y, ldc, accumulate);
      else if (vectors == 1)
        product_of<A, T, 1>(count, x, lda, b, column, y, ldc, accumulate);
      else
        product_of<A, T, WIDE, 3>(count, x, lda, b, column, y, ldc, accumulate);
      first += count;
    }
    column += vectors * W;
  }
}

}  // namespace anychip
