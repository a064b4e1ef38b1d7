// From token ids to vectors, and from chosen tokens to what the next step reads.
#pragma once

#include <cstring>

#include "operators.h"
#include "sampling_operators.h"

namespace anychip {

constexpr int64_t NOT_FINITE = -1, NOTHING_LEFT = -2;  // in place of tokens, as in anychip.sample.take

// Call body(pointer) with indices below `count`, int32 or int64.
template <class Body>
inline void with_indices(const Tensor& indices, int64_t count, const Body& body) {
  check(indices.dim() == 1 && indices.is_contiguous(), "indices are not contiguous");
  const auto checked = [&](const auto* values) {
    for (int64_t i = 0; i < indices.numel(); ++i) check(values[i] >= 0 && values[i] < count, "an index is out of range");
    body(values);
  };
  if (indices.scalar_type() == ScalarType::Int) return checked(data<int32_t>(indices));
  check(indices.scalar_type() == ScalarType::Long, "indices are neither int32 nor int64");
  checked(data<int64_t>(indices));
}

// Rows [T, H] of a table [V, H].
inline Tensor embedding(Tensor token_ids, Tensor table) {
  check(table.dim() == 2 && table.is_contiguous(), "a table is no contiguous matrix");
  const int64_t tokens = token_ids.numel(), size = table.size(1);
  Tensor rows = torch::stable::new_empty(table, {tokens, size});
  with_indices(token_ids, table.size(0), [&](const auto* ids) {
    with_type(table, [&](auto* from) {
      auto* to = static_cast<decltype(from)>(rows.mutable_data_ptr());
      in_parallel(tokens, ROW_GRAIN, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t)
          std::memcpy(to + t * size, from + ids[t] * size, static_cast<size_t>(size) * sizeof(*to));
      });
    });
  });
  return rows;
}

// The tokens [S] int64 with failed ones replaced, and all noted in `newest` at their rows.
inline Tensor noted(const std::tuple<Tensor, Tensor>& chosen, const Tensor& rows, const Tensor& newest) {
  const auto& [ids, highest] = chosen;
  check(newest.scalar_type() == ScalarType::Int && newest.is_contiguous(), "the newest tokens are not int32");
  check(rows.numel() == ids.numel(), "tokens and rows differ in number");
  with_indices(rows, newest.numel(), [&](const auto* places) {
    for (int64_t i = 0; i < ids.numel(); ++i) {
      int64_t& id = mutable_data<int64_t>(ids)[i];
      const float top = data<float>(highest)[i];
      if (!std::isfinite(top)) id = std::isinf(top) && top < 0 ? NOTHING_LEFT : NOT_FINITE;
      mutable_data<int32_t>(newest)[places[i]] = static_cast<int32_t>(std::max<int64_t>(id, 0));
    }
  });
  return ids;
}

inline Tensor take_highest(Tensor logits, Tensor rows, Tensor newest) { return noted(greedy(logits), rows, newest); }

// Two numbers in [0, 1) of a stream at a position: SplitMix64, as in anychip.sample.random with purpose 0.
inline void uniforms(uint64_t key, int64_t position, float* numbers) {
  uint64_t z = key + static_cast<uint64_t>(position) * 16 * 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  numbers[0] = static_cast<float>(z >> 40) * 0x1p-24f;
  numbers[1] = static_cast<float>(z >> 16 & 0xFFFFFF) * 0x1p-24f;
}

// keys [S] int64, positions [S] int32, and the rest as in `sample` and `take_highest`.
inline Tensor take_drawn(Tensor logits, Tensor keys, Tensor positions, Tensor temperature, Tensor top_k, Tensor top_p,
                         Tensor min_p, Tensor rows, Tensor newest) {
  const int64_t count = logits.size(0);
  check(keys.scalar_type() == ScalarType::Long && keys.is_contiguous() && keys.numel() == count, "keys are not int64");
  Tensor numbers = torch::stable::new_empty(temperature, {count, 2});
  with_indices(positions, std::numeric_limits<int32_t>::max(), [&](const auto* places) {
    for (int64_t i = 0; i < count; ++i)
      uniforms(static_cast<uint64_t>(data<int64_t>(keys)[i]), places[i], mutable_data<float>(numbers) + 2 * i);
  });
  return noted(sample(logits, temperature, top_k, top_p, min_p, numbers), rows, newest);
}

}  // namespace anychip
