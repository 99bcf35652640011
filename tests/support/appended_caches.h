// appended_caches.h - tensors of appends that are made up, and caches of fewer bits beside those of
// 16 whose rows were quantised one by one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "generator/tensors/operands.h"
#include "generator/tensors/stored_rows.h"
#include "reference/half.h"
#include "reference/parts/scales.h"
#include "tuner/tensors/made_up_tables.h"

namespace attnforge::test {

/// Random rows and caches beside the tables that a tuning run makes up.
inline HostTensors made_up(const Problem& problem, unsigned seed) {
  HostTensors host;
  set_made_up_tables(problem, host, seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const Operand& operand : operands(problem)) {
    if (operand.role == Operand::Role::kTable) {
      EXPECT_TRUE(operand.content(host).size() == operand.bytes() || operand.may_be_longer)
          << operand.name << " has " << operand.content(host).size() << " bytes";
      continue;
    }
    operand.resize(host, operand.bytes());
    for (std::int64_t i = 0; i < operand.elements; ++i)
      store_element(operand.dtype, operand.in_host(host).data(), i, normal(random));
  }
  return host;
}

/// A cache, or its scales, beside what it has to be: bit for bit, but for those of NaN.
inline void expect_same(DType dtype, std::span<const std::byte> got,
                        std::span<const std::byte> wanted, const char* name) {
  ASSERT_EQ(got.size(), wanted.size()) << name;
  for (std::int64_t i = 0; i < elements_in(dtype, got.size()); ++i) {
    const float x = load_element(dtype, got.data(), i), y = load_element(dtype, wanted.data(), i);
    ASSERT_TRUE((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y)))
        << name << ", element " << i << ": " << x << " for " << y;
  }
}

/// Rows of a cache of 16 bits, those that were written, as a cache of fewer has them.
inline void quantise_cache(const Problem& problem, DType dtype, int head_dim,
                           const std::vector<std::byte>& rows, std::vector<std::byte>& codes,
                           std::vector<float>& scales) {
  const auto columns = static_cast<std::size_t>(head_dim);
  std::vector<float> row(columns);
  for (std::size_t i = 0; i < rows.size() / 2 / columns; ++i) {
    format_of(problem.dtype_q).load(rows.data(), std::int64_t(i) * head_dim, head_dim, row.data());
    if (std::ranges::all_of(row, [](float x) { return std::isnan(x); })) continue;
    const auto heads = static_cast<std::size_t>(problem.num_heads_kv);
    const std::size_t scale = problem.kv_scale >= KvScale::kToken
                                  ? i * static_cast<std::size_t>(scales_of_row(problem, head_dim))
                                  : (problem.kv_scale == KvScale::kHead ? i % heads : 0);
    quantise_row(problem, dtype, row, codes.data(), std::int64_t(i) * head_dim,
                 scales.empty() ? nullptr : scales.data() + scale);
  }
}

/// Numbers that scales have trouble with, among the first rows.
inline void make_hard(const Problem& problem, std::vector<std::byte>& rows) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto set = [&](std::int64_t i, float x) {
    store_element(problem.dtype_q, rows.data(), i, x);
  };
  const std::int64_t count = elements_in(problem.dtype_q, rows.size());
  const float hard[] = {kInfinity, std::nanf(""), -kInfinity, 1e30f, -65504.0f, 6e-8f, 1e-40f};
  for (std::int64_t i = 0; i < std::int64_t{std::size(hard)} && 97 * i + 5 < count; ++i)
    set(97 * i + 5, hard[i]);
  for (std::int64_t i = count / 2; i < std::min(count, count / 2 + 200); ++i)  // tiny, and zeros
    set(i, i % 3 == 0 ? -0.0f : i < count / 2 + 100 ? 0.0f : 3e-39f);
}

// ---- Caches whose heads come before their rows ----

/// Exchanges rows and heads of each sequence or page.
template <class Element>
void exchange(std::vector<Element>& cache, std::int64_t outer, std::int64_t rows,
              std::int64_t heads) {
  if (cache.empty()) return;
  const std::vector<Element> from = cache;
  const auto size = std::int64_t(cache.size()) / (outer * rows * heads);
  for (std::int64_t i = 0; i < outer * rows * heads; ++i) {
    const std::int64_t head = i % heads, row = i / heads % rows;
    std::copy_n(from.begin() + i * size, size,
                cache.begin() + (i / heads / rows * rows * heads + head * rows + row) * size);
  }
}

/// The caches of `host` with heads before rows; `back`: they were, and are not any more.
inline void exchange_caches(const Problem& problem, HostTensors& host, bool back) {
  const StoredRows stored = stored_rows(problem);
  const std::int64_t rows = back ? problem.num_heads_kv : stored.kv,
                     heads = back ? stored.kv : problem.num_heads_kv;
  exchange(host.k_cache, stored.kv_batch, rows, heads);
  exchange(host.v_cache, stored.kv_batch, rows, heads);
  if (problem.kv_scale < KvScale::kToken) return;
  exchange(host.k_scale, stored.kv_batch, rows, heads);
  exchange(host.v_scale, stored.kv_batch, rows, heads);
}
inline void set_heads_first(const Problem& problem, Tensors& tensors) {
  const std::int64_t rows = stored_rows(problem).kv;
  const auto set = [&](auto& tensor) {
    tensor.stride_row = tensor.stride_head;
    tensor.stride_head *= rows;
  };
  set(tensors.cache.k), set(tensors.cache.v);
  if (problem.kv_scale >= KvScale::kToken) set(tensors.k_scale), set(tensors.v_scale);
}

/// An append to caches of fewer bits is one to caches of 16, and then each row quantised.
/// `appended(problem, host)`: what host is after the append.
template <class Appended>
void expect_two_steps(const Problem& problem, unsigned seed, const Appended& appended) {
  Problem plain = problem;
  plain.dtype_k = plain.dtype_v = plain.dtype_q;
  plain.kv_scale = KvScale::kNone;
  plain.kv_zero = false;
  HostTensors before = made_up(problem, seed);
  make_hard(problem, before.k);
  make_hard(problem, before.v);
  HostTensors wide = before;
  for (const Operand& operand : operands(plain)) {
    if (!operand.name.ends_with("_cache")) continue;
    operand.resize(wide, operand.bytes());
    std::ranges::fill(operand.in_host(wide), std::byte{0xff});  // NaN
  }
  wide = appended(plain, std::move(wide));
  HostTensors wanted = before;
  const bool of_k = is_low_bit(problem.dtype_k), of_v = is_low_bit(problem.dtype_v);
  if (of_k)
    quantise_cache(problem, problem.dtype_k, problem.head_dim, wide.k_cache, wanted.k_cache,
                   wanted.k_scale);
  if (of_v)
    quantise_cache(problem, problem.dtype_v, problem.head_dim_v, wide.v_cache, wanted.v_cache,
                   wanted.v_scale);
  const HostTensors got = appended(problem, before);
  const auto bytes = [](const std::vector<float>& x) { return std::as_bytes(std::span(x)); };
  if (of_k) expect_same(problem.dtype_k, got.k_cache, wanted.k_cache, "k_cache");
  if (of_v) expect_same(problem.dtype_v, got.v_cache, wanted.v_cache, "v_cache");
  expect_same(DType::kFp32, bytes(got.k_scale), bytes(wanted.k_scale), "k_scale");
  expect_same(DType::kFp32, bytes(got.v_scale), bytes(wanted.v_scale), "v_scale");
  if (problem.queries) {
    EXPECT_EQ(got.o, wide.o);
  }
  EXPECT_EQ(got.lengths_after, wide.lengths_after);
}

}  // namespace attnforge::test
