// Packed weights: one buffer each, a header of 64 bytes and then blocks of 32 output rows ("columns" of a block).
//
//   bf16, f32   [pairs of inputs][32 columns, paired as in simd.h]
//   4 bits      [groups][32 scales f16, 32 minima f16 if any, [group / 8][32 columns][4 bytes]]
//               low nibbles hold inputs 8s .. 8s+3, high ones 8s+4 .. 8s+7
//   8 bits      [groups][32 scales f16, 32 minima f16 if any, [group / 4][32 columns][4 bytes]]
//
// Quantized, a weight is code * scale + minimum, or without minima (code - 8) * scale, (code - 128) * scale.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd.h"

namespace anychip {

constexpr int64_t BLOCK = 32;

enum class Kind : int32_t { bfloat16 = 0, float32 = 1, bits4 = 2, bits8 = 3 };

struct Header {
  uint32_t magic;
  Kind kind;
  int32_t group;
  int32_t minima;
  int64_t rows;
  int64_t inputs;
  int64_t unused[4];
};
static_assert(sizeof(Header) == 64);
constexpr uint32_t MAGIC = 0x70696863;

struct Weight {
  const Header* header;
  const char* data;

  static Weight at(const void* buffer) {
    return {static_cast<const Header*>(buffer), static_cast<const char*>(buffer) + sizeof(Header)};
  }
  int64_t rows() const { return header->rows; }
  int64_t inputs() const { return header->inputs; }
  int64_t pairs() const { return (header->inputs + 1) / 2; }
  int64_t groups() const { return header->inputs / header->group; }
  int64_t blocks() const { return (header->rows + BLOCK - 1) / BLOCK; }
  bool quantized() const { return header->kind == Kind::bits4 || header->kind == Kind::bits8; }
  const char* block(int64_t number) const { return data + number * block_bytes(*header); }

  static int64_t group_bytes(const Header& header) {
    const int64_t code_bytes = header.kind == Kind::bits4 ? header.group / 2 : header.group;
    return BLOCK * (2 + (header.minima ? 2 : 0) + code_bytes);
  }
  static int64_t block_bytes(const Header& header) {
    const int64_t pairs = (header.inputs + 1) / 2;
    if (header.kind == Kind::bfloat16) return pairs * BLOCK * 4;
    if (header.kind == Kind::float32) return pairs * BLOCK * 8;
    return header.inputs / header.group * group_bytes(header);
  }
  static int64_t bytes(const Header& header) {
    return static_cast<int64_t>(sizeof(Header)) + (header.rows + BLOCK - 1) / BLOCK * block_bytes(header);
  }
};

// values [rows][stride] -> one block's pairs; rows beyond the last are zero.
template <class T>
inline void pack_block(const T* values, int64_t stride, int64_t rows, int64_t inputs, T* out) {
  const int64_t pairs = (inputs + 1) / 2;
  std::memset(out, 0, static_cast<size_t>(pairs * 2 * BLOCK) * sizeof(T));
  for (int64_t column = 0; column < rows; ++column)
    for (int64_t k = 0; k < inputs; ++k)
      out[k / 2 * 2 * BLOCK + pair_element<T>(k % 2, column, BLOCK)] = values[column * stride + k];
}

// codes [rows][inputs], scales and minima [rows][groups] f16 -> one block.
inline void pack_codes(const Header& header, const uint8_t* codes, const uint16_t* scales, const uint16_t* minima,
                       int64_t rows, char* out) {
  const int64_t groups = header.inputs / header.group, group = header.group;
  std::memset(out, 0, static_cast<size_t>(Weight::block_bytes(header)));
  for (int64_t g = 0; g < groups; ++g, out += Weight::group_bytes(header)) {
    auto* factors = reinterpret_cast<uint16_t*>(out);
    auto* bytes = reinterpret_cast<uint8_t*>(out) + BLOCK * (header.minima ? 4 : 2);
    for (int64_t column = 0; column < rows; ++column) {
      factors[column] = scales[column * groups + g];
      if (header.minima) factors[BLOCK + column] = minima[column * groups + g];
      const uint8_t* source = codes + column * header.inputs + g * group;
      for (int64_t k = 0; k < group; ++k) {
        if (header.kind == Kind::bits8)
          bytes[k / 4 * 4 * BLOCK + column * 4 + k % 4] = source[k];
        else
          bytes[k / 8 * 4 * BLOCK + column * 4 + k % 4] |= static_cast<uint8_t>((source[k] & 15) << (k % 8 / 4 * 4));
      }
    }
  }
}

}  // namespace anychip
