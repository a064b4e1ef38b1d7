// For tests of the AVX-512 variants on processors without it: SIMDe's portable intrinsics, and the few it lacks.
// Compile with -DANYCHIP_EMULATE -mavx2 -mfma -mf16c and SIMDe on the include path.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

namespace anychip {

inline __m512i emulated_cvtepu16_epi32(__m256i x) {
  uint16_t from[16];
  uint32_t to[16];
  __builtin_memcpy(from, &x, sizeof(from));
  for (int i = 0; i < 16; ++i) to[i] = from[i];
  return simde_mm512_loadu_si512(to);
}
inline __m256i emulated_cvtepi32_epi16(__m512i x) {
  uint32_t from[16];
  uint16_t to[16];
  simde_mm512_storeu_si512(from, x);
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint16_t>(from[i]);
  __m256i result;
  __builtin_memcpy(&result, to, sizeof(to));
  return result;
}
inline __m512 emulated_cvtph_ps(__m256i x) {
  uint16_t from[16];
  float to[16];
  __builtin_memcpy(from, &x, sizeof(from));
  for (int i = 0; i < 16; ++i) to[i] = _cvtsh_ss(from[i]);
  return simde_mm512_loadu_ps(to);
}
inline __m512i emulated_cvtps_epi32(__m512 x) {
  float from[16];
  int32_t to[16];
  simde_mm512_storeu_ps(from, x);
  for (int i = 0; i < 16; ++i) to[i] = static_cast<int32_t>(__builtin_lrintf(from[i]));
  return simde_mm512_loadu_si512(to);
}
inline __m512 emulated_cvtepi32_ps(__m512i x) {
  int32_t from[16];
  float to[16];
  simde_mm512_storeu_si512(from, x);
  for (int i = 0; i < 16; ++i) to[i] = static_cast<float>(from[i]);
  return simde_mm512_loadu_ps(to);
}

}  // namespace anychip

#define _mm512_cvtepu16_epi32 ::anychip::emulated_cvtepu16_epi32
#define _mm512_cvtepi32_epi16 ::anychip::emulated_cvtepi32_epi16
#define _mm512_cvtph_ps ::anychip::emulated_cvtph_ps
#define _mm512_cvtps_epi32 ::anychip::emulated_cvtps_epi32
#define _mm512_cvtepi32_ps ::anychip::emulated_cvtepi32_ps
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 simde_mm512_madd_epi16
