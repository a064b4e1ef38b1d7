// Stacks of layers under a number, so that a step need not name each tensor again.
#pragma once

#include "numbered.h"
#include "stack.h"
#include "tensors.h"

namespace anychip {

constexpr size_t TENSORS_OF_LAYER = 10;  // as in `Layer`; an empty tensor stands for none

struct Stack {
  Shape shape;
  std::vector<Layer> layers;
  const float* final_norm;
  std::vector<Tensor> held;  // owns what the layers point at
  Workspace work;
};

inline Numbered<Stack>& stacks() {
  static Numbered<Stack> one;
  return one;
}

inline const float* floats_or_null(const Tensor& tensor) {
  if (tensor.numel() == 0) return nullptr;
  check(tensor.scalar_type() == ScalarType::Float && tensor.is_contiguous(), "a stack's vectors are float32");
  return data<float>(tensor);
}

// shape: hidden, heads, kv_heads, dim, inner, activation.
inline int64_t new_stack(std::vector<int64_t> shape, double eps, std::vector<Tensor> tensors, Tensor final_norm) {
  check(shape.size() == 6 && tensors.size() % TENSORS_OF_LAYER == 0, "a stack's description has the wrong size");
  auto made = std::make_shared<Stack>();
  made->shape = {shape[0], shape[1], shape[2], shape[3], shape[4], static_cast<float>(eps),
                 static_cast<Activation>(shape[5])};
  for (size_t at = 0; at < tensors.size(); at += TENSORS_OF_LAYER) {
    const Tensor* of = tensors.data() + at;
    made->layers.push_back({floats_or_null(of[0]), weight_of(of[1]), floats_or_null(of[2]), floats_or_null(of[3]),
                            floats_or_null(of[4]), weight_of(of[5]), floats_or_null(of[6]), floats_or_null(of[7]),
                            weight_of(of[8]), weight_of(of[9])});
  }
  made->final_norm = floats_or_null(final_norm);
  made->held = std::move(tensors);
  made->held.push_back(final_norm);
  return stacks().add(made);
}

inline void drop_stack(int64_t number) { stacks().drop(number); }

inline Wanted wanted_of(const std::optional<Tensor>& wanted, int64_t tokens) {
  if (!wanted.has_value()) return {nullptr, tokens};
  check(wanted->scalar_type() == ScalarType::Int && wanted->is_contiguous(), "wanted tokens are int32");
  const int32_t* at = data<int32_t>(*wanted);
  const int64_t count = wanted->numel();
  for (int64_t i = 0; i < count; ++i)
    check(at[i] >= (i ? at[i - 1] + 1 : 0) && at[i] < tokens, "wanted tokens do not ascend");
  return {at, count};
}

// x [T, H] embedded tokens -> [T, H] normalized hidden states, or those of the tokens `wanted` [L] int32, ascending.
// planes: k and v of each layer; groups: which of the tables a layer reads; windows: 0 for none.
inline Tensor run_stack(int64_t number, Tensor x, Tensor positions, Tensor cos_sin, Tensor query_start,
                        std::vector<Tensor> planes, std::vector<Tensor> tables, std::vector<int64_t> groups,
                        std::vector<int64_t> windows, std::optional<Tensor> wanted) {
  const auto stack = stacks().find(number);
  const Shape& shape = stack->shape;
  const int64_t tokens = x.size(0), hidden = shape.hidden;
  check(x.is_contiguous() && x.size(1) == hidden, "a stack's input has another shape");
  const size_t layers = stack->layers.size();
  check(planes.size() == 2 * layers && groups.size() == layers && windows.size() == layers, "a layer lacks its cache");
  Workspace& work = stack->work;
  struct Call {
    Places places;
    size_t attention;
  };
  std::vector<Call> calls;
  work.attention.clear();
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto before = [&](size_t other) {
      return groups[other] == groups[layer] && windows[other] == windows[layer];
    };
    size_t same = 0;
    while (!before(same)) ++same;
    if (same < layer) {
      calls.push_back(calls[same]);
      continue;
    }
    const Tensor& table = tables.at(static_cast<size_t>(groups[layer]));
    calls.push_back({places_of(positions, query_start, table, windows[layer]), work.attention.size()});
    make_tasks(calls.back().places, shape.kv_heads, shape.heads / shape.kv_heads, work.attention.emplace_back());
  }
  work.reserve(shape, stack->layers, tokens);
  const Turns turns{data<float>(cos_sin), cos_sin.size(1)};
  const Wanted last = wanted_of(wanted, tokens);
  Tensor out = torch::stable::new_empty(x, {last.count, hidden});
  float* stream = work.stream.take<float>(tokens * hidden);
  const float* delta = work.delta.take<float>(tokens * hidden);
  with_type(x, [&](auto* from) {
    auto* to = static_cast<decltype(from)>(out.mutable_data_ptr());
    with_entries(planes[0], [&](auto* plane) {
      using T = std::remove_pointer_t<decltype(plane)>;
      std::vector<Pages<T>> pages;
      for (size_t layer = 0; layer < layers; ++layer)
        pages.push_back(pages_of<T>(planes[2 * layer], planes[2 * layer + 1]));
      as_team(threads(), [&](const Member& member) {
        member.split(tokens, ROW_GRAIN, [&](int64_t first, int64_t last) {
          copy_row(from + first * hidden, (last - first) * hidden, stream + first * hidden);
        });
        for (size_t layer = 0; layer < layers; ++layer)
          run_layer(member, shape, stack->layers[layer], pages[layer], calls[layer].places,
                    work.attention[calls[layer].attention], turns, tokens, layer == 0,
                    layer + 1 == layers ? last : Wanted{nullptr, tokens}, work);
        const Stream left{stream, delta, hidden, shape.eps};
        member.split(last.count, ROW_GRAIN, [&](int64_t first, int64_t end) {
          for (int64_t token = first; token < end; ++token)
            left.normalize(token, stack->final_norm, to + token * hidden);
        });
      });
    });
  });
  return out;
}

}  // namespace anychip
