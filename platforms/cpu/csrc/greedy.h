// The highest logit of each row without a copy of the vocabulary.
#pragma once

#include <limits>

#include "threads.h"

namespace anychip {

// (place, value) of the highest; the first of equals. The value is no number where any logit is none.
template <class X>
inline void highest_of(const X* logits, int64_t size, int64_t* place, float* value) {
  constexpr float LOWEST = -std::numeric_limits<float>::infinity();
  vf best = set1(LOWEST), doubt = zero();
  int64_t i = 0;
  for (; i + W <= size; i += W) {
    const vf x = load(logits + i);
    best = max(x, best);
    doubt = add(doubt, mul(sub(x, x), zero()));  // what is infinite or no number leaves no number here
  }
  float top = lane_max(best);
  for (int64_t j = i; j < size; ++j) top = widen(logits[j]) > top ? widen(logits[j]) : top;
  if (!(sum(doubt) == 0) || i < size) {
    for (int64_t j = 0; j < size; ++j)
      if (std::isnan(widen(logits[j]))) top = std::numeric_limits<float>::quiet_NaN();
  }
  *value = top;
  *place = 0;
  for (int64_t j = 0; j < size; ++j)
    if (widen(logits[j]) == top) {
      *place = j;
      return;
    }
}

}  // namespace anychip
