// Products of quantized weights with activations quantized to int8, one scale a group of inputs.
#pragma once

#include <algorithm>

#include "weight.h"

namespace anychip {

// Quantized activations: codes [m][inputs]; of each group, [m][groups], a scale, the sum of the codes times the scale, and
// the integer that a sum of products starts from.
struct Codes {
  const int8_t* codes;
  const float* scales;
  const float* sums;
  const int32_t* starts;
};

#ifdef ANYCHIP_AVX512
using vi = __m512i;
inline vi broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}
inline vi load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline vi low_nibbles(vi x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline vi high_nibbles(vi x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }
inline vi zero_integers() { return _mm512_setzero_si512(); }
inline vf to_float(vi x) { return _mm512_cvtepi32_ps(x); }
inline vi set_integers(int32_t x) { return _mm512_set1_epi32(x); }
inline vi add_integers(vi x, vi y) { return _mm512_add_epi32(x, y); }
inline vi max_integers(vi x, vi y) { return _mm512_max_epi32(x, y); }
inline vi bits_of_magnitude(vf x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }
inline __m256i lower_half(vi x) { return _mm512_castsi512_si256(x); }
inline __m256i upper_half(vi x) { return _mm512_extracti64x4_epi64(x, 1); }
inline vi round_integers(vf x) { return _mm512_cvtps_epi32(x); }
inline void store_integers(int32_t* p, vi x) { _mm512_storeu_si512(p, x); }
inline void store_bytes(uint8_t* p, vi x) { _mm512_storeu_si512(p, x); }
inline void store_codes(int8_t* p, vi x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x)); }
#else
using vi = __m256i;
inline vi broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}
inline vi load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline vi low_nibbles(vi x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline vi high_nibbles(vi x) { return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15)); }
inline vi zero_integers() { return _mm256_setzero_si256(); }
inline vf to_float(vi x) { return _mm256_cvtepi32_ps(x); }
inline vi set_integers(int32_t x) { return _mm256_set1_epi32(x); }
inline vi add_integers(vi x, vi y) { return _mm256_add_epi32(x, y); }
inline vi max_integers(vi x, vi y) { return _mm256_max_epi32(x, y); }
inline vi bits_of_magnitude(vf x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }
inline vi round_integers(vf x) { return _mm256_cvtps_epi32(x); }
inline void store_integers(int32_t* p, vi x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
inline void store_bytes(uint8_t* p, vi x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
inline void store_codes(int8_t* p, vi x) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
#endif

inline int32_t sum_integers(vi x) {
#ifdef ANYCHIP_AVX512
  const __m256i half = _mm256_add_epi32(lower_half(x), upper_half(x));
#else
  const __m256i half = x;
#endif
  const __m128i quarter = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i pair = _mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}
inline int32_t max_of_integers(vi x) {
#ifdef ANYCHIP_AVX512
  const __m256i half = _mm256_max_epi32(lower_half(x), upper_half(x));
#else
  const __m256i half = x;
#endif
  const __m128i quarter = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i pair = _mm_max_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}

// The largest magnitude of x [count]; as integers order as their magnitudes do, what is no number is the largest.
inline float largest_magnitude(const float* x, int64_t count) {
  vi bits = zero_integers();
  for (int64_t k = 0; k < count; k += W) bits = max_integers(bits, bits_of_magnitude(load(x + k)));
  const int32_t most = max_of_integers(bits);
  float largest;
  std::memcpy(&largest, &most, 4);
  return largest;
}

// Sums over inputs of unsigned codes times signed ones, kept so that few instructions are needed a step.
#if defined(ANYCHIP_VNNI)
constexpr bool SHORT_SUMS = false;
inline vi dot8(vi sum, vi weights, vi x) {
#ifdef ANYCHIP_EMULATE
  return _mm512_dpbusd_epi32(sum, weights, x);
#else
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(x));  // GCC copies the sums of the intrinsic to and fro
  return sum;
#endif
}
inline vi dot4(vi sum, vi weights, vi x) { return dot8(sum, weights, x); }
inline vi finish4(vi sum) { return sum; }
constexpr bool SIGNED_8 = false;
#elif defined(ANYCHIP_AVX512)
// Eight steps of 4-bit codes fit 16 bits: 8 * 2 * 15 * 127 = 30480.
constexpr bool SHORT_SUMS = true;
inline vi dot4(vi sum, vi weights, vi x) { return _mm512_add_epi16(sum, _mm512_maddubs_epi16(weights, x)); }
inline vi finish4(vi sum) { return _mm512_madd_epi16(sum, _mm512_set1_epi16(1)); }
// Codes less 128 times x, exactly: products of bytes widened to 16 bits, even and odd ones apart.
inline vi dot8(vi sum, vi weights, vi x) {
  const vi w = _mm512_xor_si512(weights, _mm512_set1_epi8(-128));
  const vi even = _mm512_madd_epi16(_mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8), _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
  const vi odd = _mm512_madd_epi16(_mm512_srai_epi16(w, 8), _mm512_srai_epi16(x, 8));
  return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
}
constexpr bool SIGNED_8 = true;
#else
constexpr bool SHORT_SUMS = true;
inline vi dot4(vi sum, vi weights, vi x) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, x)); }
inline vi finish4(vi sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
// Codes less 128 times x: |w| * (x with w's sign) stays within 16 bits, as |x| <= 127.
inline vi dot8(vi sum, vi weights, vi x) {
  const vi w = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
  const vi products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
}
constexpr bool SIGNED_8 = true;
#endif

// What a sum of codes times x starts from, in units of the sum of x: codes are stored as unsigned numbers.
template <int BITS, bool MINIMA>
constexpr int32_t START = BITS == 4 ? (MINIMA ? 0 : -8) : SIGNED_8 ? (MINIMA ? 128 : 0) : (MINIMA ? 0 : -128);

inline int32_t start_of(const Header& header) {
  if (header.kind == Kind::bits4) return header.minima ? START<4, true> : START<4, false>;
  return header.minima ? START<8, true> : START<8, false>;
}

// x [inputs] in groups of `group`; a group's sum starts from `start` times the sum of its codes. What is no number makes
// its group's scale none, or nobody would see it.
inline void quantize_row(const float* x, int64_t inputs, int64_t group, int32_t start, int8_t* codes, float* scales,
                         float* sums, int32_t* starts) {
  for (int64_t g = 0; g < inputs / group; ++g, x += group, codes += group) {
    const float scale = largest_magnitude(x, group) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
    vi total = zero_integers();
    for (int64_t k = 0; k < group; k += W) {
      const vi code = round_integers(min(max(mul(load(x + k), set1(inverse)), set1(-127.0f)), set1(127.0f)));
      store_codes(codes + k, code);
      total = add_integers(total, code);
    }
    const int32_t sum = sum_integers(total);
    scales[g] = scale;
    starts[g] = start * sum;
    sums[g] = scale * static_cast<float>(sum);
  }
}

// Dot products of one group, added to `total`: M rows of codes with V vectors of columns, CHUNKS of 8 inputs at a time.
template <int M, int V, int CHUNKS>
[[gnu::always_inline]] inline void group_sums_4(const uint8_t* bytes, const int8_t* x, int64_t ldx, int64_t group,
                                                vi (&total)[M][V]) {
  for (int64_t first = 0; first < group; first += 8 * CHUNKS) {
    vi sums[M][V];
    repeat<M>(ANYCHIP_EACH(m) {
      repeat<V>(ANYCHIP_EACH(v) { sums[m][v] = SHORT_SUMS ? zero_integers() : total[m][v]; });
    });
    repeat<CHUNKS>(ANYCHIP_EACH(k) {
      vi both[V];
      repeat<V>(ANYCHIP_EACH(v) { both[v] = load_bytes(bytes + k * 4 * BLOCK + v * W * 4); });
      repeat<2>(ANYCHIP_EACH(half) {
        vi codes[V];
        repeat<V>(ANYCHIP_EACH(v) { codes[v] = half == 0 ? low_nibbles(both[v]) : high_nibbles(both[v]); });
        repeat<M>(ANYCHIP_EACH(m) {
          const vi four = broadcast4(x + m * ldx + 8 * k + 4 * half);
          repeat<V>(ANYCHIP_EACH(v) { sums[m][v] = dot4(sums[m][v], codes[v], four); });
        });
      });
    });
    bytes += 4 * CHUNKS * BLOCK;
    x += 8 * CHUNKS;
    repeat<M>(ANYCHIP_EACH(m) {
      repeat<V>(ANYCHIP_EACH(v) {
        total[m][v] = SHORT_SUMS ? add_integers(total[m][v], finish4(sums[m][v])) : sums[m][v];
      });
    });
  }
}

template <int M, int V>
[[gnu::always_inline]] inline void group_sums_8(const uint8_t* bytes, const int8_t* x, int64_t ldx, int64_t group,
                                                vi (&total)[M][V]) {
  for (int64_t k = 0; k < group; k += 4) {
    vi weights[V];
    repeat<V>(ANYCHIP_EACH(v) { weights[v] = load_bytes(bytes + k * BLOCK + v * W * 4); });
    repeat<M>(ANYCHIP_EACH(m) {
      const vi four = broadcast4(x + m * ldx + k);
      repeat<V>(ANYCHIP_EACH(v) { total[m][v] = dot8(total[m][v], weights[v], four); });
    });
  }
}

// What a strip fetches for later while it works on group g: the same block further on, or every `every`th group of the
// next block.
struct Ahead {
  int64_t every;
  int64_t turn;

  [[gnu::always_inline]] void fetch(const char* at, int64_t g, int64_t step, int64_t block) const {
    const char* from = every == 0 ? at + 2048 : at + block;
    if (every > 1 && g % every != turn) return;
    for (int64_t ahead = 0; ahead < step; ahead += 64) __builtin_prefetch(from + ahead, 0, 2);
  }
};

// c[m][32] of one block for M rows, V vectors of columns at a time, all sums in registers.
template <int BITS, bool MINIMA, int M, int V>
[[gnu::noinline]] void integer_strip(const Weight& weight, const char* block, int64_t column, const Codes& x, int64_t row,
                                     Ahead ahead, float* c) {
  const int64_t group = weight.header->group, groups = weight.groups(), inputs = weight.inputs();
  const int64_t step = Weight::group_bytes(*weight.header);
  const int8_t* codes = x.codes + row * inputs;
  const float *scales = x.scales + row * groups, *totals = x.sums + row * groups;
  const int32_t* starts = x.starts + row * groups;
  vf sums[M][V];
  repeat<M>(ANYCHIP_EACH(m) { repeat<V>(ANYCHIP_EACH(v) { sums[m][v] = zero(); }); });
  for (int64_t g = 0; g < groups; ++g, block += step, codes += group) {
    const auto* factors = reinterpret_cast<const uint16_t*>(block);
    const auto* bytes = reinterpret_cast<const uint8_t*>(block) + BLOCK * (MINIMA ? 4 : 2) + column * 4;
    ahead.fetch(block, g, step, groups * step);
    vi dots[M][V];
    repeat<M>(ANYCHIP_EACH(m) {
      const vi start = START<BITS, MINIMA> ? set_integers(starts[m * groups + g]) : zero_integers();
      repeat<V>(ANYCHIP_EACH(v) { dots[m][v] = start; });
    });
    if (BITS == 4 && group == 16)
      group_sums_4<M, V, 2>(bytes, codes, inputs, group, dots);
    else if (BITS == 4)
      group_sums_4<M, V, 4>(bytes, codes, inputs, group, dots);
    else
      group_sums_8<M, V>(bytes, codes, inputs, group, dots);
    repeat<V>(ANYCHIP_EACH(v) {
      const vf scale = load_half(factors + column + v * W);
      repeat<M>(ANYCHIP_EACH(m) {
        const int64_t at = m * groups + g;
        sums[m][v] = fma(mul(scale, set1(scales[at])), to_float(dots[m][v]), sums[m][v]);
        if (MINIMA) sums[m][v] = fma(load_half(factors + BLOCK + column + v * W), set1(totals[at]), sums[m][v]);
      });
    });
  }
  repeat<M>(ANYCHIP_EACH(m) {
    repeat<V>(ANYCHIP_EACH(v) { store(c + m * BLOCK + column + v * W, sums[m][v]); });
  });
}

#ifdef ANYCHIP_AVX512
constexpr int MAX_INTEGER_ROWS = 6;  // sums in integers and in floats fill 24 of the registers
#else
constexpr int MAX_INTEGER_ROWS = 4;
#endif

template <int BITS, bool MINIMA, int V, int M>
inline void integer_rows(int rows, const Weight& weight, const char* block, int64_t column, const Codes& x, int64_t row,
                         Ahead ahead, float* c) {
  if constexpr (M > 0) {
    if (rows == M)
      integer_strip<BITS, MINIMA, M, V>(weight, block, column, x, row, ahead, c);
    else
      integer_rows<BITS, MINIMA, V, M - 1>(rows, weight, block, column, x, row, ahead, c);
  }
}

// c [rows][32] = x rows first .. first + rows times one block.
template <int BITS, bool MINIMA>
inline void integer_block(const Weight& weight, int64_t number, const Codes& x, int64_t first, int64_t rows, float* c) {
  constexpr int ALL = static_cast<int>(BLOCK) / W;
  const char* block = weight.block(number);
  const int64_t tiles = (rows + MAX_INTEGER_ROWS - 1) / MAX_INTEGER_ROWS;
  for (int64_t tile = 0, done = 0; tile < tiles; ++tile) {
    const int count = static_cast<int>((rows - done) / (tiles - tile));
    const Ahead ahead{rows <= 2 ? 0 : tiles, tile};
    float* out = c + done * BLOCK;
    if (ALL == 2 || count == 1) {
      constexpr int M = ALL == 2 ? MAX_INTEGER_ROWS : 1;
      integer_rows<BITS, MINIMA, ALL, M>(count, weight, block, 0, x, first + done, ahead, out);
    } else {
      for (int64_t column = 0; column < BLOCK; column += 2 * W)
        integer_rows<BITS, MINIMA, 2, MAX_INTEGER_ROWS>(count, weight, block, column, x, first + done, ahead, out);
    }
    done += count;
  }
}

}  // namespace anychip
