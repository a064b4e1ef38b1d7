// Torch's tensors as the kernels' arguments, through the stable ABI only.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include "cache_codes.h"
#include "threads.h"
#include "weight.h"

namespace anychip {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("anychip_cpu: ") + what);
}

template <class T>
inline const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}
template <class T>
inline T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// A vector in the model's type as float32: itself, or a copy in `held`.
class Floats {
 public:
  explicit Floats(const std::optional<Tensor>& tensor) {
    if (!tensor.has_value()) return;
    check(tensor->is_contiguous(), "a vector is not contiguous");
    if (tensor->scalar_type() == ScalarType::Float) {
      values_ = data<float>(*tensor);
      return;
    }
    check(tensor->scalar_type() == ScalarType::BFloat16, "a vector is neither float32 nor bfloat16");
    const int64_t size = tensor->numel();
    float* wide = held_.take<float>(size);
    for (int64_t i = 0; i < size; ++i) wide[i] = widen(data<bf16>(*tensor)[i]);
    values_ = wide;
  }
  const float* get() const { return values_; }

 private:
  const float* values_ = nullptr;
  Scratch held_;
};

// Call body(pointer) with the tensor's elements in their type, float32 or bfloat16.
template <class Body>
inline void with_type(const Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == ScalarType::Float)
    body(mutable_data<float>(tensor));
  else {
    check(tensor.scalar_type() == ScalarType::BFloat16, "a tensor is neither float32 nor bfloat16");
    body(mutable_data<bf16>(tensor));
  }
}

// The same for a plane of a cache, which may hold int8 codes.
template <class Body>
inline void with_entries(const Tensor& plane, const Body& body) {
  if (plane.scalar_type() == ScalarType::Char)
    body(mutable_data<int8_t>(plane));
  else
    with_type(plane, body);
}

// A buffer for a packed weight.
inline Tensor packed_buffer(const Tensor& like, const Header& header) {
  Tensor packed = torch::stable::new_empty(like, {Weight::bytes(header)}, ScalarType::Byte);
  std::memcpy(mutable_data<char>(packed), &header, sizeof(Header));
  return packed;
}

inline Weight weight_of(const Tensor& packed) {
  const Weight weight = Weight::at(packed.const_data_ptr());
  check(packed.numel() >= 64 && weight.header->magic == MAGIC, "not a packed weight");
  return weight;
}

// Planes as `new_cache` makes them: k [blocks, heads, dim / 2, block_size, 2], v [blocks, heads, block_size / 2, dim, 2],
// or with the 2 before the columns in float32. Codes: [blocks, heads, block_size, dim + the bytes of a scale].
template <class T>
inline Pages<T> pages_of(const Tensor& k, const Tensor& v) {
  if constexpr (sizeof(T) == 1)
    return {mutable_data<T>(k), mutable_data<T>(v), k.size(1), k.size(2), k.size(3) - SCALE_BYTES,
            v.size(3) - SCALE_BYTES};
  const int64_t columns = sizeof(T) == 2 ? 3 : 4;
  return {mutable_data<T>(k), mutable_data<T>(v), k.size(1), k.size(columns), 2 * k.size(2), v.size(columns)};
}

inline Places places_of(const Tensor& positions, const Tensor& query_start, const Tensor& table, int64_t window) {
  check(positions.scalar_type() == ScalarType::Int && query_start.scalar_type() == ScalarType::Int &&
            table.scalar_type() == ScalarType::Int && (table.size(1) == 1 || table.stride(1) == 1),
        "a step's arrays are not int32");
  return {data<int32_t>(positions), data<int32_t>(query_start), data<int32_t>(table), query_start.numel() - 1,
          table.stride(0), window};
}

}  // namespace anychip
