// Products with packed weights: activations brought into the form the weight wants, then blocks of columns in parallel.
#pragma once

#include <algorithm>

#include "integer.h"
#include "threads.h"
#include "tile.h"
#ifdef ANYCHIP_AMX
#include "tiles_amx.h"
#endif

namespace anychip {

constexpr int64_t FEW = 16;  // rows up to which work is split by columns only
constexpr int64_t ROWS = 48;  // rows of a task, a multiple of what a tile holds
constexpr int64_t TASKS = 16;  // for a thread, at least where there are blocks enough: the last ones leave others waiting
constexpr int64_t DEPTH = 160;  // pairs of inputs whose weights stay in the first cache
constexpr int64_t AHEAD = 4096;  // bytes of weights fetched before they are needed, where little is done with each
constexpr int64_t FAR_AHEAD = DEPTH * BLOCK * 4;  // and where they are used by several tiles

// [m][stride] in the form that products with one weight take.
struct Activations {
  int64_t rows;
  int64_t stride;
  const float* wide;
  const bf16* narrow;
  Codes codes;
};

inline int64_t padded(int64_t inputs) { return (inputs + 15) / 16 * 16 + 16; }

// Whether products with the weight take activations in bfloat16.
inline bool takes_bfloat16([[maybe_unused]] const Weight& weight) {
#ifdef ANYCHIP_BF16
  return weight.header->kind == Kind::bfloat16;
#else
  return false;
#endif
}

// Buffers of products that follow each other.
class Prepared {
 public:
  // Make room for activations of `rows` tokens, before a team shares it.
  void reserve(const Weight& weight, int64_t rows) {
    if (weight.quantized()) {
      const int64_t groups = rows * weight.groups();
      codes_.take<int8_t>(rows * weight.inputs());
      scales_.take<float>(groups);
      sums_.take<float>(groups);
      starts_.take<int32_t>(groups);
    } else if (takes_bfloat16(weight)) {
      narrow_.take<bf16>(rows * padded(weight.inputs()));
    } else {
      wide_.take<float>(rows * padded(weight.inputs()));
    }
  }

  // Activations x [rows][stride], complete; they must stay until the product is done. Ready for all when it returns.
  [[gnu::noinline]] Activations prepare(const Member& member, const Weight& weight, const float* x, int64_t stride,
                                        int64_t rows) {
    if (!weight.quantized() && !takes_bfloat16(weight) && weight.inputs() % 2 == 0)
      return {rows, stride, x, nullptr, {}};
    return prepare(member, weight, rows, [&](int64_t m) { return x + m * stride; });
  }

  // The same of rows that are made one at a time: row(m) gives the floats of one, until it is called again.
  template <class Row>
  Activations prepare(const Member& member, const Weight& weight, int64_t rows, const Row& row) {
    const int64_t inputs = weight.inputs();
    const auto each = [&](const auto& body) {
      member.split(rows, FEW, [&](int64_t first, int64_t last) {
        for (int64_t m = first; m < last; ++m) body(m);
      });
      member.wait();
    };
    if (weight.quantized()) {
      const int64_t groups = weight.groups(), group = weight.header->group;
      const int32_t start = start_of(*weight.header);
      auto* codes = codes_.take<int8_t>(rows * inputs);
      auto* scales = scales_.take<float>(rows * groups);
      auto* sums = sums_.take<float>(rows * groups);
      auto* starts = starts_.take<int32_t>(rows * groups);
      each([&](int64_t m) {
        quantize_row(row(m), inputs, group, start, codes + m * inputs, scales + m * groups, sums + m * groups,
                     starts + m * groups);
      });
      return {rows, 0, nullptr, nullptr, {codes, scales, sums, starts}};
    }
    const int64_t stride = padded(inputs);
    if (takes_bfloat16(weight)) {
      auto* out = narrow_.take<bf16>(rows * stride);
      each([&](int64_t m) { copy_padded(row(m), inputs, out + m * stride); });
      return {rows, stride, nullptr, out, {}};
    }
    auto* out = wide_.take<float>(rows * stride);
    each([&](int64_t m) { copy_padded(row(m), inputs, out + m * stride); });
    return {rows, stride, out, nullptr, {}};
  }

 private:
  // With a zero after an odd number of values: products take pairs.
  template <class T>
  static void copy_padded(const float* from, int64_t count, T* to) {
    int64_t k = 0;
    for (; k + W <= count; k += W) store(to + k, load(from + k));
    for (; k < count; ++k) put(to + k, from[k]);
    if (count % 2) put(to + count, 0);
  }

  Scratch codes_, scales_, sums_, starts_, narrow_, wide_;
};

template <class A, class T>
inline void float_block(const A* x, int64_t stride, int64_t rows, const T* block, int64_t pairs, float* c) {
  const int64_t parts = rows <= 3 ? 1 : (pairs + DEPTH - 1) / DEPTH;
  int64_t done = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t depth = (pairs - done) / (parts - part);
    const T* start = block + done * 2 * BLOCK;
    const Panels<T> panel{&start, 1, depth, BLOCK, rows <= 3 ? AHEAD : FAR_AHEAD};
    strip_product(rows, x + 2 * done, stride, panel, BLOCK, c, BLOCK, part > 0);
    done += depth;
  }
}

#ifdef ANYCHIP_AMX
// The same in tiles as far as they go, and in vectors beyond.
inline void tiled_block(const bf16* x, int64_t stride, int64_t rows, const bf16* block, int64_t pairs, float* c) {
  const int64_t tiled = rows / TILE_ROWS * TILE_ROWS, deep = pairs / TILE_PAIRS * TILE_PAIRS;
  if (!tiled || !deep || !configure_tiles()) return float_block(x, stride, rows, block, pairs, c);
  tile_block(x, stride, tiled, block, deep, c);
  const bf16* rest = block + deep * 2 * BLOCK;
  if (deep < pairs)
    strip_product(tiled, x + 2 * deep, stride, Panels<bf16>{&rest, 1, pairs - deep, BLOCK, FAR_AHEAD}, BLOCK, c, BLOCK,
                  true);
  if (tiled < rows) float_block(x + tiled * stride, stride, rows - tiled, block, pairs, c + tiled * BLOCK);
}
#endif

// c [rows][32] = rows first .. first + rows of x times one block of the weight.
[[gnu::noinline]] inline void block_product(const Weight& weight, int64_t number, const Activations& x, int64_t first, int64_t rows,
                          float* c) {
  const char* block = weight.block(number);
  switch (weight.header->kind) {
    case Kind::bfloat16: {
      const auto* packed = reinterpret_cast<const bf16*>(block);
#if defined(ANYCHIP_AMX)
      tiled_block(x.narrow + first * x.stride, x.stride, rows, packed, weight.pairs(), c);
#elif defined(ANYCHIP_BF16)
      float_block(x.narrow + first * x.stride, x.stride, rows, packed, weight.pairs(), c);
#else
      float_block(x.wide + first * x.stride, x.stride, rows, packed, weight.pairs(), c);
#endif
      return;
    }
    case Kind::float32:
      float_block(x.wide + first * x.stride, x.stride, rows, reinterpret_cast<const float*>(block), weight.pairs(), c);
      return;
    case Kind::bits4:
      return weight.header->minima ? integer_block<4, true>(weight, number, x.codes, first, rows, c)
                                   : integer_block<4, false>(weight, number, x.codes, first, rows, c);
    case Kind::bits8:
      return weight.header->minima ? integer_block<8, true>(weight, number, x.codes, first, rows, c)
                                   : integer_block<8, false>(weight, number, x.codes, first, rows, c);
  }
}

// Call body(first row, rows, block number) for this member's parts of a [rows] x [blocks] product. How a product is cut
// has no influence on any of its sums.
template <class Body>
inline void for_blocks(const Member& member, int64_t rows, int64_t blocks, const Body& body) {
  if (rows <= FEW) {
    member.split(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t number = begin; number < end; ++number) body(int64_t{0}, rows, number);
    });
    return;
  }
  const int64_t chunks = (rows + ROWS - 1) / ROWS;
  const int64_t strips = std::min(blocks, std::max<int64_t>(1, (TASKS * threads() + chunks - 1) / chunks));
  member.each_task(chunks * strips, [&](int64_t task) {
    const int64_t chunk = task / strips, strip = task % strips;
    const int64_t first = chunk * ROWS, count = std::min(ROWS, rows - first);
    for (int64_t number = blocks * strip / strips; number < blocks * (strip + 1) / strips; ++number)
      body(first, count, number);
  });
}

// Threads that a product keeps busy.
inline int64_t useful_threads(const Weight& weight, int64_t rows) {
  return weight.rows() * weight.inputs() * rows / 16384 + 1;
}

// Where a product goes: y [rows][stride] of T, plus an optional bias.
template <class T>
struct Output {
  T* y;
  int64_t stride;
  const float* bias;

  void put(const float* c, int64_t row, int64_t column, int64_t width) const {
    T* out = y + row * stride + column;
    int64_t i = 0;
    for (; i + W <= width; i += W)
      store(out + i, bias ? add(load(c + i), load(bias + column + i)) : load(c + i));
    for (; i < width; ++i) {
      const float value = bias ? c[i] + bias[column + i] : c[i];
      if constexpr (sizeof(T) == 2)
        out[i] = narrow(value);
      else
        out[i] = value;
    }
  }
};

// This member's part of y = x * weight + bias.
template <class T>
inline void multiply(const Member& member, const Weight& weight, const Activations& x, const Output<T>& out) {
  const int64_t total = weight.rows();
  for_blocks(member, x.rows, weight.blocks(), [&](int64_t first, int64_t rows, int64_t number) {
    alignas(64) float c[ROWS * BLOCK];
    block_product(weight, number, x, first, rows, c);
    const int64_t column = number * BLOCK, width = std::min(BLOCK, total - column);
    for (int64_t m = 0; m < rows; ++m) out.put(c + m * BLOCK, first + m, column, width);
  });
}

enum class Activation : int64_t { silu = 0, gelu = 1, gelu_tanh = 2 };

inline vf activate(vf x, Activation activation) {
  if (activation == Activation::silu) return mul(x, sigmoid(x));
  if (activation == Activation::gelu_tanh) {
    const vf inner = mul(mul(set1(0.7978845608028654f), x), fma(mul(x, x), set1(0.044715f), set1(1.0f)));
    return mul(x, sigmoid(mul(set1(2.0f), inner)));
  }
  float lanes[W];
  store(lanes, x);
  for (float& lane : lanes) lane *= 0.5f * std::erfc(lane * -0.7071067811865476f);
  return load(lanes);
}

// This member's part of out [rows][stride] = activation(gate x) * (up x), for a weight whose first half of rows is the gate.
template <class T>
inline void multiply_gated(const Member& member, const Weight& weight, const Activations& x, Activation activation,
                           T* out, int64_t stride) {
  const int64_t half = weight.rows() / 2, blocks = half / BLOCK;
  for_blocks(member, x.rows, blocks, [&](int64_t first, int64_t rows, int64_t number) {
    alignas(64) float gate[ROWS * BLOCK], up[ROWS * BLOCK];
    block_product(weight, number, x, first, rows, gate);
    block_product(weight, number + blocks, x, first, rows, up);
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t i = 0; i < BLOCK; i += W)
        store(out + (first + m) * stride + number * BLOCK + i,
              mul(activate(load(gate + m * BLOCK + i), activation), load(up + m * BLOCK + i)));
  });
}

}  // namespace anychip
