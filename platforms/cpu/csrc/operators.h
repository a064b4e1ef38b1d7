// One function an operator: types and shapes checked, then the kernels.
#pragma once

#include <tuple>

#include "attention.h"
#include "greedy.h"
#include "matmul.h"
#include "rows.h"
#include "tensors.h"

namespace anychip {

// The [rows][inputs] of a possibly strided matrix as float32, without a copy where they are that.
class WideRows {
 public:
  explicit WideRows(const Tensor& x) {
    check(x.dim() == 2 && (x.size(1) == 1 || x.stride(1) == 1), "activations are no matrix of contiguous rows");
    rows = x.size(0);
    inputs = x.size(1);
    if (x.scalar_type() == ScalarType::Float) {
      values = data<float>(x);
      stride = x.stride(0);
      return;
    }
    check(x.scalar_type() == ScalarType::BFloat16, "activations are neither float32 nor bfloat16");
    stride = padded(inputs);
    thread_local Scratch held;
    float* wide = held.take<float>(rows * stride);
    const bf16* from = data<bf16>(x);
    const int64_t step = x.stride(0);
    in_parallel(rows, ROW_GRAIN, [&](int64_t first, int64_t last) {
      for (int64_t m = first; m < last; ++m) copy_row(from + m * step, inputs, wide + m * stride);
    });
    values = wide;
  }
  const float* values;
  int64_t rows, inputs, stride;
};

inline Prepared& prepared() {
  thread_local Prepared one;
  return one;
}

inline Tensor pack(Tensor values) {
  check(values.dim() == 2 && values.is_contiguous(), "a weight is no contiguous matrix");
  const bool narrow = values.scalar_type() == ScalarType::BFloat16;
  const Header header{MAGIC, narrow ? Kind::bfloat16 : Kind::float32, 1, 0, values.size(0), values.size(1), {}};
  Tensor packed = packed_buffer(values, header);
  auto* to = mutable_data<char>(packed);
  const Weight weight = Weight::at(to);
  with_type(values, [&](auto* from) {
    using T = std::remove_pointer_t<decltype(from)>;
    in_parallel(weight.blocks(), 1, [&](int64_t first, int64_t last) {
      for (int64_t number = first; number < last; ++number) {
        const int64_t row = number * BLOCK, count = std::min(BLOCK, header.rows - row);
        char* block = to + sizeof(Header) + number * Weight::block_bytes(header);
        pack_block<T>(from + row * header.inputs, header.inputs, count, header.inputs, reinterpret_cast<T*>(block));
      }
    });
  });
  return packed;
}

// codes [N, K] uint8, scales and minima [N, K / group] float16.
inline Tensor pack_quantized(Tensor codes, Tensor scales, std::optional<Tensor> minima, int64_t bits) {
  const int64_t rows = codes.size(0), inputs = codes.size(1), groups = scales.size(1), group = inputs / groups;
  check(codes.is_contiguous() && scales.is_contiguous() && (bits == 4 || bits == 8), "quantized weights are strided");
  check(inputs % groups == 0 && group % 16 == 0 && (group == 16 || group % 32 == 0), "groups of no multiple of 32, nor 16");
  check(scales.scalar_type() == ScalarType::Half, "scales are not float16");
  const Header header{MAGIC, bits == 4 ? Kind::bits4 : Kind::bits8, static_cast<int32_t>(group), minima.has_value(), rows,
                      inputs, {}};
  Tensor packed = packed_buffer(codes, header);
  auto* to = mutable_data<char>(packed);
  const auto* lowest = minima.has_value() ? data<uint16_t>(*minima) : nullptr;
  in_parallel(Weight::at(to).blocks(), 1, [&](int64_t first, int64_t last) {
    for (int64_t number = first; number < last; ++number) {
      const int64_t row = number * BLOCK;
      pack_codes(header, data<uint8_t>(codes) + row * inputs, data<uint16_t>(scales) + row * groups,
                 lowest ? lowest + row * groups : nullptr, std::min(BLOCK, rows - row),
                 to + sizeof(Header) + number * Weight::block_bytes(header));
    }
  });
  return packed;
}

inline Tensor product_with(const float* x, int64_t stride, int64_t rows, const Tensor& like, const Tensor& packed,
                           const std::optional<Tensor>& bias) {
  const Weight weight = weight_of(packed);
  const Floats wide_bias(bias);
  Tensor y = torch::stable::new_empty(like, {rows, weight.rows()});
  Prepared& buffers = prepared();
  buffers.reserve(weight, rows);
  with_type(y, [&](auto* out) {
    as_team(useful_threads(weight, rows), [&](const Member& member) {
      const Activations ready = buffers.prepare(member, weight, x, stride, rows);
      multiply(member, weight, ready, Output<std::remove_pointer_t<decltype(out)>>{out, weight.rows(), wide_bias.get()});
    });
  });
  return y;
}

inline Tensor linear(Tensor x, Tensor weight, std::optional<Tensor> bias) {
  const WideRows rows(x);
  check(rows.inputs == weight_of(weight).inputs(), "activations and weight differ in width");
  return product_with(rows.values, rows.stride, rows.rows, x, weight, bias);
}

inline Tensor rms_norm(Tensor x, Tensor weight, double eps) {
  const Tensor rows = torch::stable::contiguous(x);
  const int64_t size = x.size(x.dim() - 1), count = size ? x.numel() / size : 0;
  const Floats gain(weight);
  Tensor y = torch::stable::empty_like(rows);
  with_type(rows, [&](auto* from) {
    auto* to = static_cast<decltype(from)>(y.mutable_data_ptr());
    in_parallel(count, ROW_GRAIN, [&](int64_t first, int64_t last) {
      for (int64_t m = first; m < last; ++m)
        norm_row(from + m * size, gain.get(), size, static_cast<float>(eps), to + m * size);
    });
  });
  return y;
}

// total = x + residual, rounded; normed [rows][size] of the unrounded sum.
template <class Out>
inline void add_norm_rows(const Tensor& x, const Tensor& residual, const float* gain, float eps, const Tensor& total,
                          Out* normed) {
  const int64_t count = x.size(0), size = x.size(1), step = x.stride(0), other = residual.stride(0);
  with_type(x, [&](auto* from) {
    const auto* rest = static_cast<decltype(from)>(residual.mutable_data_ptr());
    auto* sums = static_cast<decltype(from)>(total.mutable_data_ptr());
    in_parallel(count, ROW_GRAIN, [&](int64_t first, int64_t last) {
      thread_local Scratch held;
      float* wide = held.take<float>(size);
      for (int64_t m = first; m < last; ++m) {
        add_row(from + m * step, rest + m * other, size, wide);
        norm_row(wide, gain, size, eps, normed + m * size);
        for (int64_t i = 0; i < size; ++i) put(sums + m * size + i, wide[i]);
      }
    });
  });
}

inline std::tuple<Tensor, Tensor> add_rms_norm(Tensor x, Tensor residual, Tensor weight, double eps) {
  const Floats gain(weight);
  Tensor y = torch::stable::new_empty(x, {x.size(0), x.size(1)}), total = torch::stable::empty_like(y);
  with_type(y, [&](auto* to) { add_norm_rows(x, residual, gain.get(), static_cast<float>(eps), total, to); });
  return {y, total};
}

inline Tensor gate(Tensor x, int64_t activation) {
  const int64_t rows = x.size(0), half = x.size(1) / 2, step = x.stride(0);
  Tensor y = torch::stable::new_empty(x, {rows, half});
  with_type(x, [&](auto* from) {
    auto* to = static_cast<decltype(from)>(y.mutable_data_ptr());
    in_parallel(rows, ROW_GRAIN, [&](int64_t first, int64_t last) {
      for (int64_t m = first; m < last; ++m) {
        int64_t i = 0;
        for (; i + W <= half; i += W)
          store(to + m * half + i, mul(activate(load(from + m * step + i), static_cast<Activation>(activation)),
                                       load(from + m * step + half + i)));
        if (i == half) continue;
        float gates[W] = {}, ups[W] = {};
        for (int64_t j = i; j < half; ++j)
          gates[j - i] = widen(from[m * step + j]), ups[j - i] = widen(from[m * step + half + j]);
        store(gates, mul(activate(load(gates), static_cast<Activation>(activation)), load(ups)));
        for (int64_t j = i; j < half; ++j) put(to + m * half + j, gates[j - i]);
      }
    });
  });
  return y;
}

inline std::tuple<Tensor, Tensor> norm_linear(Tensor x, std::optional<Tensor> residual, Tensor norm, double eps,
                                              Tensor weight, std::optional<Tensor> bias) {
  const Floats gain(norm);
  const int64_t rows = x.size(0), size = x.size(1);
  thread_local Scratch held;
  float* normed = held.take<float>(rows * size);
  Tensor total = x;
  if (residual.has_value()) {
    total = torch::stable::new_empty(x, {rows, size});
    add_norm_rows(x, *residual, gain.get(), static_cast<float>(eps), total, normed);
  } else {
    with_type(x, [&](auto* from) {
      for (int64_t m = 0; m < rows; ++m)
        norm_row(from + m * x.stride(0), gain.get(), size, static_cast<float>(eps), normed + m * size);
    });
  }
  return {product_with(normed, size, rows, x, weight, bias), total};
}

inline Tensor gated_mlp(Tensor x, Tensor gate_up, Tensor down, int64_t activation) {
  const WideRows rows(x);
  const Weight first = weight_of(gate_up);
  const int64_t inner = first.rows() / 2;
  check(inner % BLOCK == 0, "a gate does not fill its blocks");
  thread_local Scratch held;
  float* hidden = held.take<float>(rows.rows * inner);
  Prepared& buffers = prepared();
  buffers.reserve(first, rows.rows);
  as_team(useful_threads(first, rows.rows), [&](const Member& member) {
    const Activations ready = buffers.prepare(member, first, rows.values, rows.stride, rows.rows);
    multiply_gated(member, first, ready, static_cast<Activation>(activation), hidden, inner);
  });
  return product_with(hidden, inner, rows.rows, x, down, std::nullopt);
}

// ids [L] int64 and the highest logit [L] float32 of logits [L, V].
inline std::tuple<Tensor, Tensor> greedy(Tensor logits) {
  check(logits.dim() == 2 && logits.stride(1) == 1, "logits are no matrix of contiguous rows");
  const int64_t rows = logits.size(0), size = logits.size(1), step = logits.stride(0);
  Tensor ids = torch::stable::new_empty(logits, {rows}, ScalarType::Long);
  Tensor highest = torch::stable::new_empty(logits, {rows}, ScalarType::Float);
  auto* places = mutable_data<int64_t>(ids);
  auto* values = mutable_data<float>(highest);
  with_type(logits, [&](auto* from) {
    in_parallel(rows, 4, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) highest_of(from + row * step, size, places + row, values + row);
    });
  });
  return {ids, highest};
}

template <class X>
inline Heads<X> heads_of(const Tensor& x) {
  check(x.dim() == 3 && x.stride(2) == 1, "heads are not contiguous");
  return {data<X>(x), x.stride(0), x.stride(1), x.size(1)};
}

inline void kv_write(Tensor k, Tensor v, Tensor k_plane, Tensor v_plane, Tensor positions, Tensor query_start,
                     Tensor table) {
  const Places places = places_of(positions, query_start, table, 0);
  with_type(k, [&](auto* values) {
    using X = std::remove_pointer_t<decltype(values)>;
    with_entries(k_plane, [&](auto* plane) {
      using T = std::remove_pointer_t<decltype(plane)>;
      const Heads<X> keys = heads_of<X>(k), values_of = heads_of<X>(v);
      const Pages<T> pages = pages_of<T>(k_plane, v_plane);
      as_team(k.size(0) / ROW_GRAIN, [&](const Member& member) { write_cache(member, keys, values_of, pages, places); });
    });
  });
}

inline Tensor rope_and_write(Tensor q, Tensor k, Tensor v, std::optional<Tensor> q_norm, std::optional<Tensor> k_norm,
                             double eps, Tensor positions, Tensor cos_sin, Tensor k_plane, Tensor v_plane,
                             Tensor query_start, Tensor table) {
  const Places places = places_of(positions, query_start, table, 0);
  const Floats q_gain(q_norm), k_gain(k_norm);
  const Turns turns{data<float>(cos_sin), cos_sin.size(1)};
  Tensor turned = torch::stable::new_empty(q, {q.size(0), q.size(1), q.size(2)});
  with_type(turned, [&](auto* out) {
    using X = std::remove_pointer_t<decltype(out)>;
    with_entries(k_plane, [&](auto* plane) {
      using T = std::remove_pointer_t<decltype(plane)>;
      const Heads<X> queries = heads_of<X>(q), keys = heads_of<X>(k), values = heads_of<X>(v);
      const Pages<T> pages = pages_of<T>(k_plane, v_plane);
      as_team(q.size(0) / ROW_GRAIN, [&](const Member& member) {
        rotate_and_write(member, queries, keys, values, q_gain.get(), k_gain.get(), static_cast<float>(eps), turns,
                         pages, places, out, queries.count * pages.dim);
      });
    });
  });
  return turned;
}

inline Tensor attention(Tensor q, Tensor k_plane, Tensor v_plane, Tensor positions, Tensor query_start, Tensor table,
                        int64_t window, double scale, double softcap, std::optional<Tensor> sinks) {
  const Places places = places_of(positions, query_start, table, window);
  const Floats sink_values(sinks);
  const Form form{static_cast<float>(scale), static_cast<float>(softcap), sink_values.get()};
  Tensor out;
  with_entries(k_plane, [&](auto* plane) {
    using T = std::remove_pointer_t<decltype(plane)>;
    const Pages<T> pages = pages_of<T>(k_plane, v_plane);
    out = torch::stable::new_empty(q, {q.size(0), q.size(1), pages.value_dim});
    with_type(out, [&](auto* to) {
      using X = std::remove_pointer_t<decltype(to)>;
      const Heads<X> heads = heads_of<X>(q);
      const Queries<X> queries{heads.data, heads.token_stride, heads.head_stride, heads.count};
      const int64_t group = heads.count / pages.heads;
      Work work;
      make_tasks(places, pages.heads, group, work);
      thread_local Scratch held;
      float* partial = held.take<float>(work.parts * running_size(group, pages.value_dim));
      as_team(static_cast<int64_t>(work.tasks.size()), [&](const Member& member) {
        paged_attention(member, queries, pages, places, work, form, partial, to, heads.count * pages.value_dim);
      });
    });
  });
  return out;
}

}  // namespace anychip
