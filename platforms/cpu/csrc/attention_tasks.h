// What attention does in a step, cut into tasks of which each belongs to one head of the cache.
#pragma once

#include <algorithm>
#include <vector>

#include "cache.h"

namespace anychip {

constexpr int64_t FEW_TOKENS = 8;    // tokens of a row up to which its context is cut
constexpr int64_t CONTEXT_PART = 512;  // tokens of a part
constexpr int64_t QUERY_ROWS = 48;   // (token, head) pairs of a task

struct Task {
  int32_t row, head, first, last;  // tokens of the batch
  int32_t low, high;               // positions of context
  int32_t part;                    // place among the partial results, -1: writes the output itself
};

inline int64_t oldest(const Places& places, int64_t position) {
  return places.window ? std::max<int64_t>(0, position - places.window + 1) : 0;
}

// The tasks of a step, and how many of them have partial results. Parts of one (row, head) follow each other.
struct Work {
  std::vector<Task> tasks;
  int64_t parts = 0;
};

[[gnu::noinline]] inline void make_tasks(const Places& places, int64_t kv_heads, int64_t group, Work& work) {
  int32_t parts = 0;
  std::vector<Task>& tasks = work.tasks;
  tasks.clear();
  const int64_t most = std::max<int64_t>(1, QUERY_ROWS / group);
  for (int64_t row = 0; row < places.rows; ++row) {
    const int32_t begin = places.query_start[row], end = places.query_start[row + 1];
    const bool few = end - begin <= std::min(most, FEW_TOKENS);
    for (int32_t first = begin; first < end; first += static_cast<int32_t>(most)) {
      const int32_t last = std::min(end, first + static_cast<int32_t>(most));
      const int32_t low = static_cast<int32_t>(oldest(places, places.positions[first]));
      const int32_t high = places.positions[last - 1] + 1;
      const bool cut = few && (high - 1) / CONTEXT_PART > low / CONTEXT_PART;
      for (int32_t head = 0; head < kv_heads; ++head) {
        int32_t from = low;
        while (from < high) {
          const int32_t next = static_cast<int32_t>((from / CONTEXT_PART + 1) * CONTEXT_PART);
          const int32_t to = cut ? std::min(high, next) : high;
          tasks.push_back({static_cast<int32_t>(row), head, first, last, from, to, cut ? parts++ : -1});
          from = to;
        }
      }
    }
  }
  work.parts = parts;
}

}  // namespace anychip
