// What lives in the library from call to call, under a number that Python keeps.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "tensors.h"

namespace anychip {

template <class T>
class Numbered {
 public:
  int64_t add(std::shared_ptr<T> one) {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_[next_] = std::move(one);
    return next_++;
  }
  std::shared_ptr<T> find(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = all_.find(number);
    check(found != all_.end(), "a number that nothing has, or has no longer");
    return found->second;
  }
  void drop(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_.erase(number);
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<T>> all_;
  int64_t next_ = 1;
};

}  // namespace anychip
