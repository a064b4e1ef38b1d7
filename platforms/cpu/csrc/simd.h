// Vectors of floats of the width that the variant was compiled for, and the few operations the kernels need.
//
// Macros of a variant: ANYCHIP_AVX512 (512 bits), ANYCHIP_VNNI (int8 dot products), ANYCHIP_BF16 (bfloat16 dot
// products), ANYCHIP_AMX (tiles). Without any: AVX2 with FMA and F16C.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#ifdef ANYCHIP_EMULATE
#include "emulate.h"
#else
#include <immintrin.h>
#endif

namespace anychip {

// Call body(0) .. body(N - 1) with constants, so that arrays of vectors stay in registers.
template <int N, class Body>
[[gnu::always_inline]] inline void repeat(Body&& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, I>{}), ...);
  }(std::make_integer_sequence<int, N>{});
}
#define ANYCHIP_EACH(i) [&](auto i) __attribute__((always_inline))

struct bf16 {
  uint16_t bits;
};

inline float widen(bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

inline float widen(float value) { return value; }

// Round to nearest, ties to even; a NaN stays one.
inline bf16 narrow(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

inline void put(float* to, float x) { *to = x; }
inline void put(bf16* to, float x) { *to = narrow(x); }

#ifdef ANYCHIP_AVX512

using vf = __m512;
constexpr int W = 16;

inline vf zero() { return _mm512_setzero_ps(); }
inline vf set1(float x) { return _mm512_set1_ps(x); }
inline vf load(const float* p) { return _mm512_loadu_ps(p); }
inline vf load(const bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline vf load(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline vf load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store(float* p, vf x) { _mm512_storeu_ps(p, x); }
inline void store(bf16* p, vf x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}
inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
inline vf add(vf a, vf b) { return _mm512_add_ps(a, b); }
inline vf sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
inline vf mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
inline vf div(vf a, vf b) { return _mm512_div_ps(a, b); }
inline vf max(vf a, vf b) { return _mm512_max_ps(a, b); }
inline vf min(vf a, vf b) { return _mm512_min_ps(a, b); }
inline __m256 upper_half(vf x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }
inline float sum(vf x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), upper_half(x));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
inline float lane_max(vf x) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), upper_half(x));
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}
inline vf round_even(vf x) { return _mm512_roundscale_ps(x, 0); }
inline vf times_power_of_2(vf x, vf n) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
  return mul(x, _mm512_castsi512_ps(exponent));
}
// Zero where x is below the limit.
inline vf zero_below(vf value, vf x, float limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, set1(limit), _CMP_GE_OQ), value);
}
inline vf first_of_pairs(const bf16* p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
inline vf second_of_pairs(const bf16* p) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), mask));
}

#else

using vf = __m256;
constexpr int W = 8;

inline vf zero() { return _mm256_setzero_ps(); }
inline vf set1(float x) { return _mm256_set1_ps(x); }
inline vf load(const float* p) { return _mm256_loadu_ps(p); }
inline vf load(const bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline vf load(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline vf load_half(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void store(float* p, vf x) { _mm256_storeu_ps(p, x); }
inline void store(bf16* p, vf x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
  const __m128i low = _mm256_castsi256_si128(rounded), high = _mm256_extracti128_si256(rounded, 1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packus_epi32(low, high));
}
inline vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
inline vf add(vf a, vf b) { return _mm256_add_ps(a, b); }
inline vf sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
inline vf mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
inline vf div(vf a, vf b) { return _mm256_div_ps(a, b); }
inline vf max(vf a, vf b) { return _mm256_max_ps(a, b); }
inline vf min(vf a, vf b) { return _mm256_min_ps(a, b); }
inline float sum(vf x) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
inline float lane_max(vf x) {
  const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 quarter = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
}
inline vf round_even(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline vf times_power_of_2(vf x, vf n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return mul(x, _mm256_castsi256_ps(exponent));
}
inline vf zero_below(vf value, vf x, float limit) {
  return _mm256_and_ps(value, _mm256_cmp_ps(x, set1(limit), _CMP_GE_OQ));
}
inline vf first_of_pairs(const bf16* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16));
}
inline vf second_of_pairs(const bf16* p) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), mask));
}

#endif

// One of two neighbouring rows of a matrix kept in pairs: bf16 as [column][2], float as [2][column].
template <int ROW>
inline vf load_pair_row(const bf16* p, int64_t) {
  if constexpr (ROW == 0)
    return first_of_pairs(p);
  else
    return second_of_pairs(p);
}
template <int ROW>
inline vf load_pair_row(const float* p, int64_t columns) {
  return load(p + ROW * columns);
}
template <class T>
constexpr int64_t pair_column(int64_t column);
template <>
constexpr int64_t pair_column<bf16>(int64_t column) { return 2 * column; }
template <>
constexpr int64_t pair_column<float>(int64_t column) { return column; }
template <class T>
constexpr int64_t pair_element(int64_t row_in_pair, int64_t column, int64_t columns);
template <>
constexpr int64_t pair_element<bf16>(int64_t row, int64_t column, int64_t) { return 2 * column + row; }
template <>
constexpr int64_t pair_element<float>(int64_t row, int64_t column, int64_t columns) { return row * columns + column; }

constexpr float LOWEST_EXPONENT = -87.0f;

// e^x to about one unit in the last place; 0 below LOWEST_EXPONENT, finite above 88. Polynomial of Cephes.
inline vf exponential(vf x) {
  const vf bounded = min(max(x, set1(LOWEST_EXPONENT)), set1(88.0f));
  const vf n = round_even(mul(bounded, set1(1.44269504088896341f)));
  vf r = fma(n, set1(-0.693359375f), bounded);
  r = fma(n, set1(2.12194440e-4f), r);
  vf p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  return zero_below(times_power_of_2(p, n), x, LOWEST_EXPONENT);
}

// 1 / (1 + e^-x)
inline vf sigmoid(vf x) { return div(set1(1.0f), add(set1(1.0f), exponential(sub(zero(), x)))); }

inline vf hyperbolic_tangent(vf x) {
  return sub(mul(set1(2.0f), sigmoid(mul(set1(2.0f), x))), set1(1.0f));
}

}  // namespace anychip
