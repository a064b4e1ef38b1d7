// The operator that draws tokens.
#pragma once

#include <tuple>

#include "sampling.h"
#include "tensors.h"

namespace anychip {

// logits [L, V], temperature, top_p, min_p [L] float32, top_k [L] int32, numbers [L, 2] float32 -> ids [L] int64, highest
// logits [L] float32.
inline std::tuple<Tensor, Tensor> sample(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p,
                                         Tensor numbers) {
  check(logits.dim() == 2 && logits.stride(1) == 1, "logits are no matrix of contiguous rows");
  const int64_t rows = logits.size(0), size = logits.size(1), step = logits.stride(0);
  for (const Tensor& each : {temperature, top_p, min_p, numbers})
    check(each.is_contiguous() && each.scalar_type() == ScalarType::Float, "a sampling parameter is not float32");
  check(top_k.is_contiguous() && top_k.scalar_type() == ScalarType::Int, "top_k is not int32");
  check(temperature.numel() == rows && top_k.numel() == rows && top_p.numel() == rows && min_p.numel() == rows &&
            numbers.numel() == 2 * rows,
        "sampling parameters and logits differ in rows");
  Tensor ids = torch::stable::new_empty(logits, {rows}, ScalarType::Long);
  Tensor highest = torch::stable::new_empty(logits, {rows}, ScalarType::Float);
  auto* places = mutable_data<int64_t>(ids);
  auto* values = mutable_data<float>(highest);
  const auto *heat = data<float>(temperature), *nucleus = data<float>(top_p), *share = data<float>(min_p),
             *number = data<float>(numbers);
  const auto* most = data<int32_t>(top_k);
  with_type(logits, [&](auto* from) {
    in_parallel(rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row)
        draw_row(from + row * step, size,
                 Choice{heat[row], nucleus[row], share[row], most[row], number[2 * row], number[2 * row + 1]},
                 places + row, values + row);
    });
  });
  return {ids, highest};
}

}  // namespace anychip
