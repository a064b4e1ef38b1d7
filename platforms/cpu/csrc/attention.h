// Paged attention: one pass over a row's pages for all heads that share them, softmax in float32 as it goes (Milakov
// and Gimelshein, 2018; Dao et al., 2022). Where a processor multiplies bfloat16, queries and weights are rounded to
// the type of the pages. Where a row has few tokens its context is cut into parts of a
// fixed size, whose results are merged in order: nothing depends on the number of threads.
#pragma once

#include <limits>

#include "attention_tasks.h"
#include "cache_codes.h"
#include "threads.h"
#include "tile.h"

namespace anychip {

constexpr int64_t STEP = 64;         // tokens of context at a time, or one page if that is more
constexpr int64_t MAX_STEP = 128;
constexpr int64_t MIN_BLOCK = 8;     // tokens of a page
constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();

template <class T>
using Read = std::conditional_t<std::is_same_v<T, int8_t>, bf16, T>;  // what products read of pages of T

#ifdef ANYCHIP_BF16
template <class T>
using Factor = Read<T>;  // what pages of T are multiplied with
#else
template <class T>
using Factor = float;
#endif

struct Form {
  float scale;
  float softcap;      // 0: none
  const float* sinks;  // [heads] or null
};

// Running softmax of some (token, head) pairs: values [rows][value_dim], not yet divided by `total`.
struct Running {
  float* values;
  float* highest;
  float* total;
};

// Ask for memory that is read soon; a page of a head is too short for the processor to see it coming.
template <class T>
inline void fetch(const T* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(from + i, 0, 2);
}

// Scores of `rows` queries over tokens s0 .. s0 + step of one head's pages that lie in [low, high).
template <class T>
inline void score_pages(const Pages<T>& pages, const int32_t* blocks, int64_t head, const Factor<T>* q, int64_t rows,
                        int64_t s0, int64_t step, int64_t low, int64_t high, float* scores) {
  const int64_t size = pages.block_size;
  for (int64_t at = s0; at < s0 + step; at += size) {
    if (at >= high || at + size <= low) continue;
    const T* page = pages.key_page(blocks[at / size], head);
    if (s0 == 0 && at == 0 && size < high) fetch(pages.key_page(blocks[1], head), size * pages.dim);
    if (at + 2 * size < high) fetch(pages.key_page(blocks[at / size + 2], head), size * pages.dim);
    fetch(pages.value_page(blocks[at / size], head), size * pages.value_dim);
    const Panels<T> panel{&page, 1, pages.dim / 2, size, 0};
    strip_product(rows, q, pages.dim, panel, size, scores + at - s0, MAX_STEP, false);
  }
}

// One query's scores [step] -> weights, with its running highest score, total and values brought along.
[[gnu::noinline]] inline void soften(float* scores, int64_t step, int64_t begin, int64_t end, float softcap, float* highest, float* total,
                   float* values, int64_t value_dim) {
  if (begin >= end) {
    for (int64_t i = 0; i < step; ++i) scores[i] = 0;
    return;
  }
  for (int64_t i = 0; i < begin; ++i) scores[i] = MINUS_INFINITY;
  for (int64_t i = end; i < step; ++i) scores[i] = MINUS_INFINITY;
  vf top = set1(MINUS_INFINITY);
  for (int64_t i = begin / W * W; i < end; i += W) {
    vf score = load(scores + i);
    if (softcap > 0) {
      const vf capped = mul(set1(softcap), hyperbolic_tangent(mul(score, set1(1 / softcap))));
      store(scores + i, capped);
      for (int64_t j = i; j < i + W; ++j)
        if (j < begin || j >= end) scores[j] = MINUS_INFINITY;
      score = load(scores + i);
    }
    top = max(top, score);
  }
  const float best = std::max(*highest, lane_max(top));
  vf added = zero();
  for (int64_t i = 0; i < step; i += W) {
    const vf weight = exponential(sub(load(scores + i), set1(best)));
    store(scores + i, weight);
    added = add(added, weight);
  }
  if (best > *highest) {
    const float shrink = *total > 0 ? std::exp(*highest - best) : 0.0f;
    *total *= shrink;
    for (int64_t d = 0; d < value_dim; d += W) store(values + d, mul(load(values + d), set1(shrink)));
    *highest = best;
  }
  *total += sum(added);
}

// Some rows' weights times one head's values, added up.
template <class T>
struct Values {
  const Pages<T>& pages;
  int64_t rows;
  const Factor<T>* weights;  // [rows][MAX_STEP]
  float* to;                 // [rows][value_dim]

  void add(int64_t at, const T* const* pieces, int64_t count, int64_t pairs, int64_t ahead) const {
    const int64_t dim = pages.value_dim;
    strip_product(rows, weights + at, MAX_STEP, Panels<T>{pieces, count, pairs, dim, ahead}, dim, to, dim, true);
  }
  // The pair at `at`, of which one token is not there.
  void add_edge(int64_t at, const T* pair, int64_t empty) const {
    thread_local Scratch held;
    const int64_t dim = pages.value_dim;
    T* copy = held.take<T>(2 * dim);
    std::memcpy(copy, pair, static_cast<size_t>(2 * dim) * sizeof(T));
    for (int64_t d = 0; d < dim; ++d) copy[pair_element<T>(empty, d, dim)] = T{};
    const T* piece = copy;
    add(at, &piece, 1, 1, 0);
  }
  // Entries begin .. end of a page, its first at `at`.
  void add_part(int64_t at, const T* entries, int64_t begin, int64_t end) const {
    const int64_t dim = pages.value_dim;
    if (begin % 2) add_edge(at + begin - 1, entries + (begin - 1) * dim, 0), ++begin;
    const bool ragged = end % 2 && end > begin;
    if (ragged) --end;
    const T* piece = entries + begin * dim;
    if (end > begin) add(at + begin, &piece, 1, (end - begin) / 2, 0);
    if (ragged) add_edge(at + end, entries + end * dim, 1);
  }
};

// Values of tokens s0 .. s0 + step that lie in [low, high); what lies beside those may be anything, even no number.
template <class T>
inline void add_values(const Values<T>& values, const int32_t* blocks, int64_t head, int64_t s0, int64_t step,
                       int64_t low, int64_t high) {
  const int64_t size = values.pages.block_size;
  const T* whole[MAX_STEP / MIN_BLOCK];
  int64_t count = 0, first = 0;
  for (int64_t at = s0; at < s0 + step; at += size) {
    const int64_t begin = std::max(at, low) - at, end = std::min(at + size, high) - at;
    if (begin >= end) continue;
    const T* page = values.pages.value_page(blocks[at / size], head);
    if (end - begin < size)
      values.add_part(at - s0, page, begin, end);
    else {
      if (!count) first = at - s0;
      whole[count++] = page;
    }
  }
  if (count) values.add(first, whole, count, size / 2, 0);
}

// A task's running softmax; queries q [rows][dim], scaled, are ordered token by token, `group` heads each.
template <class T>
[[gnu::noinline]] void attend(const Pages<T>& pages, const Places& places, const Task& task, const Form& form,
                              const Factor<T>* q, int64_t group, const Running& running) {
  alignas(64) float scores[QUERY_ROWS * MAX_STEP];
  alignas(64) Factor<T> rounded[sizeof(Factor<T>) < 4 ? QUERY_ROWS * MAX_STEP : 1];
  const int64_t rows = (task.last - task.first) * group, step = std::max(STEP, pages.block_size);
  const int32_t* blocks = places.table + task.row * places.width;
  for (int64_t m = 0; m < rows; ++m) running.highest[m] = MINUS_INFINITY, running.total[m] = 0;
  std::memset(running.values, 0, static_cast<size_t>(rows * pages.value_dim) * 4);
  thread_local Scratch unpacked;
  for (int64_t s0 = task.low / step * step; s0 < task.high; s0 += step) {
    const auto window = open_window(pages, blocks, task.head, s0, step, task.low, task.high, unpacked);
    const bool codes = window.key_scales != nullptr;
    const int64_t from = s0 - window.origin, low = task.low - window.origin;
    const int64_t high = (codes ? std::min<int64_t>(task.high, s0 + step) : task.high) - window.origin;
    score_pages(window.pages, window.blocks, window.head, q, rows, from, step, low, high, scores);
    for (int64_t m = 0; m < rows; ++m) {
      float* row = scores + m * MAX_STEP;
      const int64_t position = places.positions[task.first + m / group];
      const int64_t begin = std::max<int64_t>({task.low, oldest(places, position), s0}) - s0;
      const int64_t end = std::min<int64_t>({task.high, position + 1, s0 + step}) - s0;
      if (codes) scale_row(row, window.key_scales, step);
      soften(row, step, begin, end, form.softcap, running.highest + m, running.total + m,
             running.values + m * pages.value_dim, pages.value_dim);
      if (codes) scale_row(row, window.value_scales, step);
      if constexpr (sizeof(Factor<T>) < 4)
        for (int64_t i = 0; i < step; i += W) store(rounded + m * MAX_STEP + i, load(row + i));
    }
    const Factor<T>* weights;
    if constexpr (sizeof(Factor<T>) < 4)
      weights = rounded;
    else
      weights = scores;
    const Values<Read<T>> values{window.pages, rows, weights, running.values};
    add_values(values, window.blocks, window.head, from, step, low, high);
  }
}

// Divide by the total, a sink's share included, and write out [tokens][out_stride], a token's heads next to each other.
template <class Out>
inline void finish(const Running& running, const Task& task, const Form& form, int64_t group, int64_t dim, Out* out,
                   int64_t out_stride) {
  for (int64_t m = 0; m < (task.last - task.first) * group; ++m) {
    const int64_t head = task.head * group + m % group;
    float factor = 1, total = running.total[m];
    if (form.sinks) {
      const float best = std::max(running.highest[m], form.sinks[head]);
      factor = std::exp(running.highest[m] - best);
      total = total * factor + std::exp(form.sinks[head] - best);
    }
    const vf share = set1(total > 0 ? factor / total : 0.0f);
    Out* to = out + (task.first + m / group) * out_stride + head * dim;
    for (int64_t d = 0; d < dim; d += W) store(to + d, mul(load(running.values + m * dim + d), share));
  }
}

// Merge `other` into `running`.
[[gnu::noinline]] inline void merge(const Running& running, const Running& other, int64_t rows, int64_t dim) {
  for (int64_t m = 0; m < rows; ++m) {
    if (other.total[m] <= 0) continue;
    const float best = std::max(running.highest[m], other.highest[m]);
    const float keep = running.total[m] > 0 ? std::exp(running.highest[m] - best) : 0.0f;
    const float take = std::exp(other.highest[m] - best);
    for (int64_t d = 0; d < dim; d += W) {
      float* values = running.values + m * dim + d;
      store(values, fma(load(other.values + m * dim + d), set1(take), mul(load(values), set1(keep))));
    }
    running.total[m] = running.total[m] * keep + other.total[m] * take;
    running.highest[m] = best;
  }
}

// Queries as [tokens][heads][dim] with strides between tokens and heads.
template <class X>
struct Queries {
  const X* data;
  int64_t token_stride;
  int64_t head_stride;
  int64_t heads;

  // The task's queries, scaled, as [rows][dim].
  template <class To>
  void gather(const Task& task, int64_t group, int64_t dim, float scale, To* to) const {
    for (int64_t token = task.first; token < task.last; ++token)
      for (int64_t g = 0; g < group; ++g, to += dim) {
        const X* from = data + token * token_stride + (task.head * group + g) * head_stride;
        for (int64_t d = 0; d < dim; d += W) store(to + d, mul(load(from + d), set1(scale)));
      }
  }
};

// Floats that a task's running softmax takes.
inline int64_t running_size(int64_t group, int64_t value_dim) {
  return std::max<int64_t>(group, QUERY_ROWS) * (value_dim + 2);
}

// This member's part of out [tokens][out_stride], heads * value_dim of each; `partial` holds running_size() floats for each of work.parts.
// Wait before and after.
template <class X, class T, class Out>
inline void paged_attention(const Member& member, const Queries<X>& q, const Pages<T>& pages, const Places& places,
                            const Work& work, const Form& form, float* partial, Out* out, int64_t out_stride) {
  const int64_t group = q.heads / pages.heads, dim = pages.value_dim;
  const int64_t most = std::max<int64_t>(group, QUERY_ROWS), stride = running_size(group, dim);
  const auto in = [&](float* at) { return Running{at, at + most * dim, at + most * (dim + 1)}; };
  const Task* all = work.tasks.data();
  const size_t count = work.tasks.size();
  member.each_task(static_cast<int64_t>(count), [&](int64_t number) {
    thread_local Scratch gathered, own;
    const Task& task = all[number];
    auto* queries = gathered.take<Factor<T>>(most * pages.dim);
    q.gather(task, group, pages.dim, form.scale, queries);
    const Running running = in(task.part < 0 ? own.take<float>(stride) : partial + task.part * stride);
    attend(pages, places, task, form, queries, group, running);
    if (task.part < 0) finish(running, task, form, group, dim, out, out_stride);
  });
  if (!work.parts) return;
  member.wait();
  member.alone([&] {
    for (size_t i = 0; i < count; ++i) {
      if (all[i].part < 0) continue;
      const Task& task = all[i];
      const Running running = in(partial + task.part * stride);
      while (i + 1 < count && all[i + 1].row == task.row && all[i + 1].head == task.head &&
             all[i + 1].first == task.first)
        merge(running, in(partial + all[++i].part * stride), (task.last - task.first) * group, dim);
      finish(running, task, form, group, dim, out, out_stride);
    }
  });
}

}  // namespace anychip
