// Work spread over torch's own threads, and memory that each thread keeps from call to call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <immintrin.h>
#include <torch/csrc/stable/ops.h>

#include "crowd.h"

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

// Threads that work on one thing in phases. Between phases they wait for each other: briefly awake, then asleep.
class Team {
 public:
  explicit Team(int64_t members) : members_(members) {}

  // How long its threads slept in `wait`, each on average.
  Crowd::Duration asleep() const { return Crowd::Duration(asleep_.load(std::memory_order_relaxed) / members_); }

 private:
  friend class Member;
  static constexpr int SPINS = 4000;
  const int64_t members_;
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  std::atomic<Crowd::Duration::rep> asleep_{0};
};

// One thread of a team. Where torch gives fewer threads than asked for, it stands for several members.
class Member {
 public:
  Member(Team& team, int64_t first, int64_t last) : team_(team), first_(first), last_(last) {}

  // Call body(begin, end) over this thread's parts of [0, count), cut so that none is smaller than `grain`.
  template <class Body>
  void split(int64_t count, int64_t grain, const Body& body) const {
    const int64_t parts = std::min(team_.members_, (count + grain - 1) / grain);
    for (int64_t part = first_; part < std::min(last_, parts); ++part)
      body(count * part / parts, count * (part + 1) / parts);
  }

  // Call body(number) for tasks of unequal size: whoever is free takes the next. Wait before and after.
  template <class Body>
  void each_task(int64_t count, const Body& body) const {
    for (int64_t number = team_.next_++; number < count; number = team_.next_++) body(number);
  }

  // Call body() on one thread.
  template <class Body>
  void alone(const Body& body) const {
    if (first_ == 0) body();
  }

  // Return once every member has come here; what they wrote before can be read then.
  void wait() const {
    const uint32_t phase = team_.phase_.load(std::memory_order_acquire);
    if (team_.arrived_.fetch_add(last_ - first_, std::memory_order_acq_rel) + last_ - first_ == team_.members_) {
      team_.arrived_.store(0, std::memory_order_relaxed);
      team_.next_.store(0, std::memory_order_relaxed);
      team_.phase_.fetch_add(1, std::memory_order_release);
      if (last_ - first_ < team_.members_) team_.phase_.notify_all();
      return;
    }
    for (int spin = 0; spin < Team::SPINS; ++spin) {
      if (team_.phase_.load(std::memory_order_acquire) != phase) return;
      _mm_pause();
    }
    const auto begin = Crowd::Clock::now();
    team_.phase_.wait(phase, std::memory_order_acquire);
    team_.asleep_.fetch_add((Crowd::Clock::now() - begin).count(), std::memory_order_relaxed);
  }

 private:
  Team& team_;
  const int64_t first_, last_;
};

// Call body(member) on as many of torch's threads as there is work for and nobody else keeps busy. It must not throw.
template <class Body>
inline void as_team(int64_t useful, const Body& body) {
  thread_local Crowd crowd;
  const int64_t members = std::max<int64_t>(1, std::min(crowd.members(threads()), useful));
  Team team(members);
  if (members == 1) return body(Member(team, 0, 1));
  const auto begin = Crowd::Clock::now();
  auto own_end = begin;
  in_parallel(members, 1, [&](int64_t first, int64_t last) {
    body(Member(team, first, last));
    if (first == 0) own_end = Crowd::Clock::now();
  });
  const auto end = Crowd::Clock::now();
  crowd.report(members, end - begin, team.asleep() + (end - own_end));
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
