// Products of bfloat16 in the processor's tile registers. Compiled, and not yet run: no machine at hand has them.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include "weight.h"

namespace anychip {

constexpr int64_t TILE_ROWS = 16;   // of activations, and columns of a weight
constexpr int64_t TILE_PAIRS = 16;  // of inputs

// Linux gives a process the tiles' state when it asks.
inline bool request_tiles() {
  constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

// All eight tiles as 16 rows of 64 bytes, once a thread; false where the system does not allow them.
inline bool configure_tiles() {
  static const bool allowed = request_tiles();
  thread_local bool ready = false;
  if (!allowed || ready) return allowed;
  alignas(64) uint8_t config[64] = {1};
  for (int tile = 0; tile < 8; ++tile) {
    const uint16_t bytes = 64;
    std::memcpy(config + 16 + 2 * tile, &bytes, sizeof(bytes));
    config[48 + tile] = TILE_ROWS;
  }
  _tile_loadconfig(config);
  ready = true;
  return true;
}

// c [rows][32] = x [rows][stride] times one block, over whole tiles: rows a multiple of 16, pairs of 16.
inline void tile_block(const bf16* x, int64_t stride, int64_t rows, const bf16* block, int64_t pairs, float* c) {
  for (int64_t m = 0; m < rows; m += TILE_ROWS) {
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t p = 0; p < pairs; p += TILE_PAIRS) {
      _tile_loadd(2, x + m * stride + 2 * p, stride * 2);
      _tile_loadd(3, block + p * 2 * BLOCK, BLOCK * 4);
      _tile_loadd(4, block + p * 2 * BLOCK + BLOCK, BLOCK * 4);
      _tile_dpbf16ps(0, 2, 3);
      _tile_dpbf16ps(1, 2, 4);
    }
    _tile_stored(0, c + m * BLOCK, BLOCK * 4);
    _tile_stored(1, c + m * BLOCK + BLOCK / 2, BLOCK * 4);
  }
}

}  // namespace anychip
