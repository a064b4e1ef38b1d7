// Work spread over torch's own threads, and memory that each thread keeps from call to call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <torch/csrc/stable/ops.h>

namespace anychip {

inline int64_t threads() { return static_cast<int64_t>(torch::stable::get_num_threads()); }

// Call body(begin, end) over parts of [0, count), none of fewer than `grain`.
template <class Body>
inline void in_parallel(int64_t count, int64_t grain, const Body& body) {
  if (count <= grain) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  torch::stable::parallel_for(0, count, grain, body);
}

// Call body(number) for each of `count` tasks of unequal size: whoever is free takes the next.
template <class Body>
inline void each_task(int64_t count, const Body& body) {
  std::atomic<int64_t> next{0};
  in_parallel(std::min(count, threads()), 1, [&](int64_t, int64_t) {
    for (int64_t number = next++; number < count; number = next++) body(number);
  });
}

// A buffer that only grows, aligned to a cache line.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  template <class T>
  T* take(int64_t count) {
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64;
    if (bytes > size_) {
      std::free(data_);
      data_ = std::aligned_alloc(64, bytes);
      size_ = data_ ? bytes : 0;
      if (!data_) throw std::bad_alloc();
    }
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace anychip
