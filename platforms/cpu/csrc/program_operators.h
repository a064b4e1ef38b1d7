// Programs under a number, made a call at a time.
#pragma once

#include <algorithm>
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

// Read `inputs` where they are from now on, and write the tokens of a run, its last result, to `chosen` [S] int32.
inline void bind_program(int64_t number, std::vector<Tensor> inputs, Tensor chosen) {
  const auto program = programs().find(number);
  check(chosen.scalar_type() == ScalarType::Int && chosen.is_contiguous(), "chosen tokens are not int32");
  program->bound = std::move(inputs);
  program->chosen = chosen;
}

inline void run_bound(Program& program) {
  program.left.clear();
  program.left = run_calls(program, program.bound);
  check(!program.left.empty() && program.chosen && program.left.back().numel() == program.chosen->numel(),
        "a program's last result is no token for each row");
  const auto* ids = data<int64_t>(program.left.back());
  std::copy_n(ids, program.chosen->numel(), mutable_data<int32_t>(*program.chosen));
}

// What the last run on bound inputs left.
inline std::vector<Tensor> program_left(int64_t number) { return programs().find(number)->left; }

}  // namespace anychip
