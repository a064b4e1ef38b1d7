// Products of quantized weights with many rows: a block's codes are unpacked once for all of them.
#pragma once

#include <limits>

#include "integer.h"
#include "threads.h"

namespace anychip {

constexpr int64_t TILE = 12;  // rows of a tile
#ifdef ANYCHIP_VNNI
constexpr int64_t MOST_APART = MAX_INTEGER_ROWS;  // rows up to which each keeps its codes to itself
constexpr int64_t UNPACKED = 16384;  // bytes of codes, one to a byte, that stay in the first cache
#else
constexpr int64_t MOST_APART = std::numeric_limits<int64_t>::max();
#endif

inline bool interleaves(int64_t rows) { return rows > MOST_APART; }

// Rows that buffers for `rows` of activations hold.
inline int64_t held_rows(int64_t rows) { return interleaves(rows) ? (rows + TILE - 1) / TILE * TILE : rows; }

// Put one row's values among those of its tile.
template <class T>
inline void interleave(const T* from, int64_t count, int64_t row, T* to) {
  to += row / TILE * TILE * count + row % TILE;
  for (int64_t i = 0; i < count; ++i) to[i * TILE] = from[i];
}

// Quantize row `row`, x [inputs], into interleaved codes and their factors.
inline void quantize_interleaved(const float* x, const Weight& weight, int64_t row, int8_t* codes, float* scales,
                                 float* sums, int32_t* code_sums) {
  thread_local Scratch held;
  const int64_t inputs = weight.inputs(), groups = weight.groups();
  auto* words = held.take<int32_t>(inputs / 4 + 3 * groups);
  auto* factors = reinterpret_cast<float*>(words + inputs / 4);
  auto* totals = words + inputs / 4 + 2 * groups;
  quantize_row(x, inputs, weight.header->group, reinterpret_cast<int8_t*>(words), factors, factors + groups, totals);
  interleave(words, inputs / 4, row, reinterpret_cast<int32_t*>(codes));
  interleave(factors, groups, row, scales);
  interleave(factors + groups, groups, row, sums);
  interleave(totals, groups, row, code_sums);
}

#ifdef ANYCHIP_VNNI
// Some groups of a block: codes one to a byte, [inputs / 4][32 columns][4], and their factors.
struct Groups {
  const uint8_t* bytes;
  const uint16_t* factors;
  int64_t step;  // bytes from one group's codes to the next one's
  int64_t factor_step;
  int64_t first, count;
};

// -(*x << BITS) in every lane.
template <int BITS>
inline vi minus_times(const int32_t* x) {
  return _mm512_sub_epi32(zero_integers(), _mm512_slli_epi32(broadcast4(reinterpret_cast<const int8_t*>(x)), BITS));
}

// c[m][32] += those groups of the block for M rows, all columns at once.
template <int BITS, bool MINIMA, int M>
[[gnu::noinline]] void wide_tile(const Groups& groups, int64_t group, int64_t inputs, int64_t total, const Codes& x,
                                 int64_t row, float* c) {
  constexpr int V = static_cast<int>(BLOCK) / W;
  const uint8_t* bytes = groups.bytes;
  const uint16_t* factors = groups.factors;
  const int8_t* codes = x.codes + row * inputs + groups.first * group * TILE;
  const int64_t start = row * total + groups.first * TILE;
  const float *scales = x.scales + start, *sums = x.sums + start;
  const int32_t* code_sums = x.code_sums + start;
  for (int64_t g = 0; g < groups.count; ++g) {
    vi dots[M][V];
    repeat<M>(ANYCHIP_EACH(m) {
      const vi none = MINIMA ? zero_integers() : minus_times<BITS == 4 ? 3 : 7>(code_sums + m);
      repeat<V>(ANYCHIP_EACH(v) { dots[m][v] = none; });
    });
    for (int64_t k = 0; k < group; k += 4) {
      vi weights[V];
      repeat<V>(ANYCHIP_EACH(v) { weights[v] = load_bytes(bytes + k * BLOCK + v * W * 4); });
      if (BITS == 8) {
        __builtin_prefetch(bytes + k * BLOCK + UNPACKED, 0, 2);
        __builtin_prefetch(bytes + k * BLOCK + UNPACKED + 64, 0, 2);
      }
      repeat<M>(ANYCHIP_EACH(m) {
        const vi four = broadcast4(codes + k * TILE + 4 * m);
        repeat<V>(ANYCHIP_EACH(v) { dots[m][v] = dot8(dots[m][v], weights[v], four); });
      });
    }
    repeat<V>(ANYCHIP_EACH(v) {
      const vf scale = load_half(factors + v * W);
      repeat<M>(ANYCHIP_EACH(m) {
        vf sum = load(c + m * BLOCK + v * W);
        sum = fma(mul(scale, set1(scales[m])), to_float(dots[m][v]), sum);
        if (MINIMA) sum = fma(load_half(factors + BLOCK + v * W), set1(sums[m]), sum);
        store(c + m * BLOCK + v * W, sum);
      });
    });
    bytes += groups.step;
    factors += groups.factor_step / 2;
    codes += group * TILE;
    scales += TILE, sums += TILE, code_sums += TILE;
    asm volatile("" ::: "memory");  // or GCC keeps c twice, there and on the stack
  }
}

template <int BITS, bool MINIMA, int M>
inline void wide_rows(int rows, const Groups& groups, const Weight& weight, const Codes& x, int64_t row, float* c) {
  if constexpr (M > 0) {
    if (rows == M)
      wide_tile<BITS, MINIMA, M>(groups, weight.header->group, weight.inputs(), weight.groups(), x, row, c);
    else
      wide_rows<BITS, MINIMA, M - 1>(rows, groups, weight, x, row, c);
  }
}

// Codes of `count` groups, two to a byte, to one to a byte; what follows in memory is fetched for the next call.
[[gnu::noinline]] inline void unpack_nibbles(const uint8_t* from, int64_t step, int64_t count, int64_t group, uint8_t* to) {
  for (int64_t g = 0; g < count; ++g, from += step)
    for (int64_t at = 0; at < group / 2 * BLOCK; at += 4 * BLOCK, to += 8 * BLOCK)
      for (int64_t i = 0; i < 4 * BLOCK; i += 4 * W) {
        __builtin_prefetch(from + at + i + count * step, 0, 2);
        const vi both = load_bytes(from + at + i);
        store_bytes(to + i, low_nibbles(both));
        store_bytes(to + 4 * BLOCK + i, high_nibbles(both));
      }
}

// The same as integer_block, for many rows: codes are unpacked once for all of them.
template <int BITS, bool MINIMA>
inline void wide_block(const Weight& weight, int64_t number, const Codes& x, int64_t first, int64_t rows, float* c) {
  thread_local Scratch held;
  const int64_t group = weight.header->group, step = Weight::group_bytes(*weight.header);
  const int64_t part = std::max<int64_t>(1, UNPACKED / (group * BLOCK)), tiles = (rows + TILE - 1) / TILE;
  uint8_t* unpacked = BITS == 4 ? held.take<uint8_t>(part * group * BLOCK) : nullptr;
  const char* block = weight.block(number);
  std::memset(c, 0, static_cast<size_t>(rows * BLOCK) * 4);
  for (int64_t g = 0; g < weight.groups(); g += part, block += part * step) {
    const int64_t count = std::min(part, weight.groups() - g);
    const auto* codes = reinterpret_cast<const uint8_t*>(block) + BLOCK * (MINIMA ? 4 : 2);
    Groups groups{codes, reinterpret_cast<const uint16_t*>(block), step, step, g, count};
    if (BITS == 4) {
      unpack_nibbles(codes, step, count, group, unpacked);
      groups.bytes = unpacked;
      groups.step = group * BLOCK;
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = tile * TILE;
      const int taken = static_cast<int>(std::min(TILE, rows - row));
      wide_rows<BITS, MINIMA, TILE>(taken, groups, weight, x, first + row, c + row * BLOCK);
    }
  }
}
#endif

// c [rows][32] = x rows first .. first + rows times one block; `all` rows of activations were prepared.
template <int BITS, bool MINIMA>
inline void quantized_block(const Weight& weight, int64_t number, const Codes& x, int64_t all, int64_t first,
                            int64_t rows, float* c) {
#ifdef ANYCHIP_VNNI
  if (interleaves(all)) return wide_block<BITS, MINIMA>(weight, number, x, first, rows, c);
#endif
  integer_block<BITS, MINIMA>(weight, number, x, first, rows, c);
}

}  // namespace anychip
