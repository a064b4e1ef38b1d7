// Drawing a token from a row of logits: no vocabulary is sorted, and a thread holds one row at a time.
#pragma once

#include <algorithm>
#include <functional>

#include "greedy.h"

namespace anychip {

constexpr int64_t DRAWN_BLOCK = 128;  // tokens drawn from at once, as in anychip.sample.choose
constexpr float LOWEST_TEMPERATURE = 1e-10f;
constexpr float UNLIKELY = -16.0f;  // below it, scaled logits are looked at only where top_p needs them

struct Choice {
  float temperature, top_p, min_p;
  int32_t top_k;  // 0: off
  float first, second;  // uniform in [0, 1)
};

// scaled[i] = (logits[i] - highest) / temperature, weights[i] = e^scaled[i].
template <class X>
inline void weigh(const X* logits, int64_t size, float highest, float temperature, float* scaled, float* weights) {
  const vf top = set1(highest), divisor = set1(std::max(temperature, LOWEST_TEMPERATURE));
  int64_t i = 0;
  for (; i + W <= size; i += W) {
    const vf value = div(sub(load(logits + i), top), divisor);
    store(scaled + i, value);
    store(weights + i, exponential(value));
  }
  for (; i < size; ++i) {
    scaled[i] = (widen(logits[i]) - highest) / std::max(temperature, LOWEST_TEMPERATURE);
    weights[i] = std::exp(scaled[i]);
  }
}

// The value of the last of the largest that are needed for `mass` of weight: selection as Hoare's, but by weight.
inline float value_at_mass(float* values, int64_t count, double mass) {
  float *begin = values, *end = values + count;
  float lowest = *std::min_element(begin, end);
  while (begin < end) {
    const float pivot = begin[(end - begin) / 2];
    float* larger = std::partition(begin, end, [&](float value) { return value > pivot; });
    double above = 0;
    for (float* at = begin; at < larger; ++at) above += std::exp(*at);
    if (above >= mass) {
      end = larger;
      continue;
    }
    float* rest = std::partition(larger, end, [&](float value) { return value == pivot; });
    const double equal = static_cast<double>(rest - larger) * std::exp(pivot);
    if (above + equal >= mass) return pivot;
    mass -= above + equal;
    begin = rest;
  }
  return lowest;
}

// Where the running sum of weights passes `number` of its total; never an element of weight 0.
inline int64_t passed(const float* weights, int64_t count, float number) {
  float total = 0, mass = 0;
  for (int64_t i = 0; i < count; ++i) total += weights[i];
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!(weights[i] > 0)) continue;
    mass += weights[i];
    last = i;
    if (mass > number * total) return i;
  }
  return last;
}

// The weight of all that lies at or above `floor`.
inline double mass_from(const float* scaled, const float* weights, int64_t size, float floor) {
  double total = 0;
  int64_t i = 0;
  for (; i + 8 * W <= size; i += 8 * W) {
    vf part = zero();
    for (int64_t j = i; j < i + 8 * W; j += W) part = add(part, zero_below(load(weights + j), load(scaled + j), floor));
    total += sum(part);
  }
  for (; i < size; ++i) total += scaled[i] >= floor ? weights[i] : 0.0f;
  return total;
}

// The least scaled logit that may be drawn: min_p first, then top_k, then top_p of what is left.
inline float least_of(const float* scaled, const float* weights, int64_t size, const Choice& choice, float* values) {
  float floor = std::log(choice.min_p);
  if (choice.top_k > 0 && choice.top_k < size) {
    std::copy(scaled, scaled + size, values);
    std::nth_element(values, values + choice.top_k - 1, values + size, std::greater<float>());
    floor = std::max(floor, values[choice.top_k - 1]);
  }
  if (!(choice.top_p < 1.0f)) return floor;
  const double needed = choice.top_p * mass_from(scaled, weights, size, floor);
  const float likely = std::max(floor, UNLIKELY);
  const float least = mass_from(scaled, weights, size, likely) >= needed ? likely : floor;
  int64_t kept = 0;
  for (int64_t i = 0; i < size; ++i) {
    values[kept] = scaled[i];
    kept += scaled[i] >= least;
  }
  return kept ? std::max(floor, value_at_mass(values, kept, needed)) : floor;
}

template <class X>
inline void draw_row(const X* logits, int64_t size, const Choice& choice, int64_t* place, float* highest) {
  thread_local Scratch held;
  const int64_t blocks = (size + DRAWN_BLOCK - 1) / DRAWN_BLOCK;
  float* scaled = held.take<float>(3 * size + blocks);
  float *weights = scaled + size, *values = weights + size, *sums = values + size;
  highest_of(logits, size, place, highest);
  if (!std::isfinite(*highest)) return;  // there is nothing to draw from, and the caller sees it
  weigh(logits, size, *highest, choice.temperature, scaled, weights);
  const float least = least_of(scaled, weights, size, choice, values);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t end = std::min(size, (block + 1) * DRAWN_BLOCK);
    vf part = zero();
    int64_t at = block * DRAWN_BLOCK;
    for (; at + W <= end; at += W) {
      const vf weight = zero_below(load(weights + at), load(scaled + at), least);
      store(weights + at, weight);
      part = add(part, weight);
    }
    sums[block] = sum(part);
    for (; at < end; ++at) sums[block] += weights[at] = scaled[at] < least ? 0.0f : weights[at];
  }
  const int64_t start = passed(sums, blocks, choice.first) * DRAWN_BLOCK;
  *place = start + passed(weights + start, std::min(DRAWN_BLOCK, size - start), choice.second);
}

}  // namespace anychip
