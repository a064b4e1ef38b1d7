// When other processes keep processors busy, a team waits at each phase for the member that lost its own. Then a smaller
// team is faster, and leaves that processor to whoever has it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace anychip {

// How many threads to leave out, by how the last teams of this thread fared.
class Crowd {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // Members for a team that could be of `most`.
  int64_t members(int64_t most) {
    if (left_out_ > 0 && Clock::now() >= retry_) --left_out_;
    return std::max<int64_t>(1, most - left_out_);
  }

  // A team of `members` took `elapsed`, for `lost` of which its threads waited asleep, each on average.
  void report(int64_t members, Duration elapsed, Duration lost) {
    if (members == 1) return;
    if (lost < MINIMUM || lost < elapsed / 4) {
      stalls_ = 0;
      if (left_out_ == 0) pause_ = SHORTEST;
      return;
    }
    if (++stalls_ < 2) return;  // one may be an accident
    stalls_ = 0;
    left_out_ = left_out_ + 1;
    retry_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, LONGEST);
  }

 private:
  static constexpr Duration MINIMUM = std::chrono::milliseconds(1);
  static constexpr Duration SHORTEST = std::chrono::milliseconds(100), LONGEST = std::chrono::seconds(2);
  int64_t left_out_ = 0, stalls_ = 0;
  Duration pause_ = SHORTEST;
  Clock::time_point retry_;
};

}  // namespace anychip
