// Programs under a number, made a call at a time.
#pragma once

#include <cstring>

#include "numbered.h"
#include "program.h"

namespace anychip {

struct Named {
  const char* name;
  Operator run;
};

inline Numbered<Program>& programs() {
  static Numbered<Program> one;
  return one;
}

inline int64_t new_program() { return programs().add(std::make_shared<Program>()); }

inline void drop_program(int64_t number) { programs().drop(number); }

// Add a call of one of `known`; `tensors` and `numbers` are what `words` refer to.
template <size_t count>
inline void add_call(const Named (&known)[count], int64_t number, const std::string& name,
                     const std::vector<Tensor>& tensors, const std::vector<int64_t>& words,
                     const std::vector<double>& numbers) {
  const auto program = programs().find(number);
  for (const Named& each : known)
    if (name == each.name) {
      program->calls.push_back({each.run, Words(tensors, words, numbers).all(), {}});
      return;
    }
  check(false, "no operator of that name can be part of a program");
}

// Say what a run returns; nothing is added afterwards.
inline void end_program(int64_t number, std::vector<int64_t> words) {
  const auto program = programs().find(number);
  program->results = Words({}, words, {}).all();
  find_last_uses(*program);
}

inline std::vector<Tensor> run_program(int64_t number, std::vector<Tensor> inputs) {
  return run_calls(*programs().find(number), inputs);
}

}  // namespace anychip
