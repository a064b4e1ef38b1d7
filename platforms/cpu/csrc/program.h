// Calls of this library's operators, noted once and run again as one: what Python said between them is left out.
//
// A call is noted as its arguments in words: 0 nothing | 1 constant, which | 2 input, which | 3 result, of call, which |
// 4 integer | 5 number, which | 6 list, length, its parts. Operators take no number that depends on a step: sizes come from
// their tensors, so that a program serves a step of any size.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tensors.h"

namespace anychip {

enum class Source : int64_t { nothing, constant, input, result, integer, number, list };

struct Argument {
  Source source = Source::nothing;
  int64_t index = 0;  // or the integer itself
  int64_t output = 0;
  double number = 0;
  std::optional<Tensor> constant;
  std::vector<Argument> parts;
};

// What a run has so far.
struct Progress {
  const std::vector<Tensor>& inputs;
  std::vector<std::vector<Tensor>> results;  // of each call
};

template <class T>
struct Argued;
template <>
struct Argued<Tensor> {
  static const Tensor& from(const Argument& argument, const Progress& so_far) {
    if (argument.source == Source::constant) return *argument.constant;
    if (argument.source == Source::input) return so_far.inputs.at(static_cast<size_t>(argument.index));
    check(argument.source == Source::result, "an argument is no tensor");
    return so_far.results.at(static_cast<size_t>(argument.index)).at(static_cast<size_t>(argument.output));
  }
};
template <>
struct Argued<int64_t> {
  static int64_t from(const Argument& argument, const Progress&) {
    check(argument.source == Source::integer, "an argument is no integer");
    return argument.index;
  }
};
template <>
struct Argued<double> {
  static double from(const Argument& argument, const Progress&) {
    check(argument.source == Source::number, "an argument is no number");
    return argument.number;
  }
};
template <class T>
struct Argued<std::optional<T>> {
  static std::optional<T> from(const Argument& argument, const Progress& so_far) {
    if (argument.source == Source::nothing) return std::nullopt;
    return Argued<T>::from(argument, so_far);
  }
};
template <class T>
struct Argued<std::vector<T>> {
  static std::vector<T> from(const Argument& argument, const Progress& so_far) {
    check(argument.source == Source::list, "an argument is no list");
    std::vector<T> all;
    all.reserve(argument.parts.size());
    for (const Argument& part : argument.parts) all.push_back(Argued<T>::from(part, so_far));
    return all;
  }
};

inline std::vector<Tensor> as_results(Tensor result) { return {std::move(result)}; }
template <class... T>
inline std::vector<Tensor> as_results(std::tuple<T...> results) {
  return std::apply([](auto&... each) { return std::vector<Tensor>{std::move(each)...}; }, results);
}

using Arguments = std::vector<Argument>;
using Operator = std::vector<Tensor> (*)(const Arguments&, const Progress&);

template <auto function, class Result, class... T, size_t... I>
inline std::vector<Tensor> call_with(Result (*)(T...), const Arguments& arguments, const Progress& so_far,
                                     std::index_sequence<I...>) {
  check(arguments.size() == sizeof...(T), "a call has another number of arguments");
  if constexpr (std::is_void_v<Result>) {
    function(Argued<std::remove_cv_t<std::remove_reference_t<T>>>::from(arguments[I], so_far)...);
    return {};
  } else {
    return as_results(function(Argued<std::remove_cv_t<std::remove_reference_t<T>>>::from(arguments[I], so_far)...));
  }
}

template <class Result, class... T>
constexpr size_t arity(Result (*)(T...)) {
  return sizeof...(T);
}

// `function` on arguments as they were noted.
template <auto function>
inline std::vector<Tensor> call(const Arguments& arguments, const Progress& so_far) {
  return call_with<function>(function, arguments, so_far, std::make_index_sequence<arity(function)>());
}

struct Call {
  Operator run;
  Arguments arguments;
  std::vector<size_t> done_with;  // calls whose results nobody reads after this one
};

struct Program {
  std::vector<Call> calls;
  Arguments results;
  std::vector<Tensor> bound, left;  // inputs that are read where they are, and what the last run on them left
  std::optional<Tensor> chosen;
};

// The words of noted arguments, read one after the other.
class Words {
 public:
  Words(const std::vector<Tensor>& tensors, const std::vector<int64_t>& words, const std::vector<double>& numbers)
      : tensors_(tensors), words_(words), numbers_(numbers) {}

  Arguments all() {
    Arguments arguments;
    while (at_ < words_.size()) arguments.push_back(next());
    return arguments;
  }

 private:
  Argument next() {
    Argument argument;
    argument.source = static_cast<Source>(word());
    switch (argument.source) {
      case Source::nothing: break;
      case Source::constant: argument.constant = tensors_.at(static_cast<size_t>(word())); break;
      case Source::input:
      case Source::integer: argument.index = word(); break;
      case Source::result:
        argument.index = word();
        argument.output = word();
        break;
      case Source::number: argument.number = numbers_.at(static_cast<size_t>(word())); break;
      case Source::list:
        for (int64_t left = word(); left > 0; --left) argument.parts.push_back(next());
        break;
      default: check(false, "a word means nothing");
    }
    return argument;
  }
  int64_t word() { return words_.at(at_++); }

  const std::vector<Tensor>& tensors_;
  const std::vector<int64_t>& words_;
  const std::vector<double>& numbers_;
  size_t at_ = 0;
};

// The numbers of the calls that arguments read.
inline void calls_read(const Arguments& arguments, const std::function<void(size_t)>& each) {
  for (const Argument& argument : arguments) {
    if (argument.source == Source::result) each(static_cast<size_t>(argument.index));
    calls_read(argument.parts, each);
  }
}

// Have each call's results given up as soon as nobody needs them.
inline void find_last_uses(Program& program) {
  std::vector<size_t> last(program.calls.size());
  for (size_t number = 0; number < last.size(); ++number) {
    last[number] = number;
    calls_read(program.calls[number].arguments, [&](size_t read) { last.at(read) = number; });
  }
  calls_read(program.results, [&](size_t read) { last.at(read) = last.size(); });
  for (size_t number = 0; number < last.size(); ++number)
    if (last[number] < last.size()) program.calls[last[number]].done_with.push_back(number);
}

inline std::vector<Tensor> run_calls(const Program& program, const std::vector<Tensor>& inputs) {
  Progress so_far{inputs, {}};
  so_far.results.reserve(program.calls.size());
  for (const Call& call : program.calls) {
    so_far.results.push_back(call.run(call.arguments, so_far));
    for (const size_t number : call.done_with) so_far.results[number].clear();
  }
  std::vector<Tensor> results;
  for (const Argument& argument : program.results) results.push_back(Argued<Tensor>::from(argument, so_far));
  return results;
}

}  // namespace anychip
