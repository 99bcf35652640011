// append_kv_gpu_test.cpp - append_kv() on a real GPU beside a plain loop on the CPU: every byte of
// the caches, of q and of the lengths.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "attnforge/append_kv.h"
#include "reference/half.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/memory.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

struct AppendCase {
  AppendSizes sizes;
  std::vector<int> new_rows{};  // of each sequence, packed; empty: sizes.seqlen_new
  bool heads_first = false;     // pages of [heads, rows, dim] (HND), else [rows, heads, dim] (NHD)
  int gap = 0;                  // elements between rows
  bool in_place = true;         // lengths, and q
};

/// Elements and how they lie, with `canary` elements of poison on both sides.
struct HostTensor {
  static constexpr std::int64_t kCanary = 64;
  DType dtype;
  Tensor strides;
  std::vector<std::byte> bytes;

  HostTensor(DType type, std::int64_t batch, std::int64_t rows, std::int64_t heads,
             std::int64_t dim, int gap, bool heads_first)
      : dtype(type) {
    const std::int64_t step = dim + gap;
    strides = heads_first ? Tensor{nullptr, rows * heads * step, step, rows * step}
                          : Tensor{nullptr, rows * heads * step, heads * step, step};
    const std::int64_t elements = batch * rows * heads * step + 2 * kCanary;
    bytes.assign(static_cast<std::size_t>(elements * bytes_of(type, 1)), std::byte{0xff});  // NaN
  }
  std::int64_t index(std::int64_t batch, std::int64_t row, std::int64_t head,
                     std::int64_t i) const {
    return kCanary + batch * strides.stride_batch + row * strides.stride_row +
           head * strides.stride_head + i;
  }
  double get(std::int64_t at) const { return load_element(dtype, bytes.data(), at); }
  void set(std::int64_t at, double x) { store_element(dtype, bytes.data(), at, float(x)); }
  void copy(std::int64_t to, const HostTensor& from, std::int64_t at) {
    const auto size = static_cast<std::size_t>(bytes_of(dtype, 1));
    std::memcpy(bytes.data() + static_cast<std::size_t>(to) * size,
                from.bytes.data() + static_cast<std::size_t>(at) * size, size);
  }
  Tensor on(const Buffer& buffer) const {
    Tensor tensor = strides;
    tensor.data = static_cast<std::byte*>(buffer.data()) + kCanary * bytes_of(dtype, 1);
    return tensor;
  }
  Buffer upload() const { return Buffer::of(std::span(bytes)); }
};

class AppendKvGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
    primary_.emplace(0);
    context_.emplace(*primary_);
    device_.emplace(DeviceOptions{.ordinal = 0, .cache_path = ":memory:"});
  }
  void expect_right(const AppendCase& c, unsigned seed);

  std::optional<PrimaryContext> primary_;
  std::optional<ScopedContext> context_;
  std::optional<Device> device_;
};

/// Bit for bit where nothing was rotated; within a rounding where it was.
void expect_same(const HostTensor& wanted, const Buffer& buffer, bool rotated, const char* name) {
  HostTensor got = wanted;
  buffer.copy_to_host(got.bytes.data(), got.bytes.size());
  if (got.bytes == wanted.bytes) return;
  ASSERT_TRUE(rotated) << name << " differs";
  const std::int64_t count = std::int64_t(got.bytes.size()) / bytes_of(got.dtype, 1);
  const double allowed = 2 * unit_roundoff(got.dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = got.get(i), y = wanted.get(i);
    if (std::isnan(y))
      ASSERT_TRUE(std::isnan(x)) << name << ", element " << i << " was not to be written";
    else
      ASSERT_NEAR(x, y, allowed * (1 + std::abs(y))) << name << ", element " << i;
  }
}

/// Of the sequences of a case.
struct AppendLengths {
  std::vector<int> ends, used, after;  // of new rows, where each begins; rows before and after it
};

/// At the borders of pages, and up to two that run over the bound.
AppendLengths drawn_lengths(const AppendCase& c, std::mt19937& random) {
  const AppendSizes& s = c.sizes;
  const int page = s.page_size > 0 ? s.page_size : 16;
  AppendLengths lengths{.ends = {0}, .used = {}, .after = {}};
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.batch); ++i) {
    const int rows = c.new_rows.empty() ? int(s.seqlen_new) : c.new_rows[i];
    const int border = int(random() % std::uint64_t(s.seqlen_kv / page + 1)) * page;
    lengths.ends.push_back(lengths.ends.back() + rows);
    lengths.used.push_back(std::clamp(border + int(random() % 3) - 1, 0, int(s.seqlen_kv)));
    lengths.after.push_back(std::min(int(s.seqlen_kv), lengths.used[i] + rows));
  }
  return lengths;
}

/// New rows of all sequences; without `random` they are what a tensor begins with.
HostTensor new_rows(const AppendSizes& s, int gap, std::int64_t heads, int dim,
                    std::mt19937* random) {
  const std::int64_t batch = s.tokens > 0 ? 1 : s.batch,
                     count = s.tokens > 0 ? s.tokens : s.seqlen_new;
  HostTensor rows(s.dtype, batch, count, heads, dim, gap, false);
  std::normal_distribution<double> normal;
  for (std::int64_t row = 0; random != nullptr && row < batch * count; ++row)
    for (std::int64_t h = 0; h < heads; ++h)
      for (int i = 0; i < dim; ++i)
        rows.set(rows.index(row / count, row % count, h, i), normal(*random));
  return rows;
}

/// Pages in any order, and some entries that are none.
std::vector<int> drawn_table(std::int64_t entries, std::int64_t pages, std::mt19937& random) {
  std::vector<int> table(static_cast<std::size_t>(entries)), order(static_cast<std::size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = random() % 8 == 0 ? (random() % 2 == 0 ? -1 : int(pages)) : order[i];
  return table;
}

struct RopeTables {
  Rope rope;
  std::int64_t offset;
  std::vector<float> cos, sin;
};

struct RowOf {
  const HostTensor& tensor;
  std::int64_t batch, row;
};

/// Copies a row, of which `turning` elements are rotated to the position, an element at a time.
void put(HostTensor& to, std::int64_t to_batch, std::int64_t to_row, const RowOf& from,
         std::int64_t heads, int dim, const RopeTables& tables, int turning,
         std::int64_t position) {
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto source = [&](int i) { return from.tensor.index(from.batch, from.row, h, i); };
    const auto target = [&](int i) { return to.index(to_batch, to_row, h, i); };
    for (int i = turning; i < dim; ++i) to.copy(target(i), from.tensor, source(i));
    for (int i = 0; i < turning / 2; ++i) {
      const int x = tables.rope == Rope::kHalf ? i : 2 * i;
      const int y = tables.rope == Rope::kHalf ? i + turning / 2 : x + 1;
      const auto entry = static_cast<std::size_t>((tables.offset + position) * (turning / 2) + i);
      const double a = from.tensor.get(source(x)), b = from.tensor.get(source(y));
      to.set(target(x), a * tables.cos[entry] - b * tables.sin[entry]);
      to.set(target(y), b * tables.cos[entry] + a * tables.sin[entry]);
    }
  }
}

void AppendKvGpu::expect_right(const AppendCase& c, unsigned seed) {
  AppendSizes s = c.sizes;
  std::mt19937 random(seed);
  const bool packed = !c.new_rows.empty(), paged = s.page_size > 0;
  const auto [ends, used, after] = drawn_lengths(c, random);
  if (packed) s.tokens = ends.back() + 3;  // rows after the last sequence's are nobody's
  const std::int64_t columns = paged ? (s.seqlen_kv + s.page_size - 1) / s.page_size : 1;
  const std::int64_t pages = paged ? s.batch * columns * 5 / 4 + 1 : s.batch;
  const std::vector<int> table = drawn_table(s.batch * columns, pages, random);

  const auto cache = [&](int dim) {
    return HostTensor(s.dtype, pages, paged ? s.page_size : s.seqlen_kv, s.num_heads_kv, dim, c.gap,
                      c.heads_first);
  };
  const HostTensor k = new_rows(s, c.gap, s.num_heads_kv, s.head_dim, &random),
                   v = new_rows(s, c.gap, s.num_heads_kv, s.head_dim_v, &random);
  HostTensor k_cache = cache(s.head_dim), v_cache = cache(s.head_dim_v);
  const HostTensor q = new_rows(s, c.gap, s.num_heads_q, s.head_dim, &random);
  HostTensor rotated_q = c.in_place ? q : new_rows(s, c.gap, s.num_heads_q, s.head_dim, nullptr);

  const int rope_dim = s.rope == Rope::kNone ? 0 : s.rope_dim == 0 ? s.head_dim : s.rope_dim;
  RopeTables tables{s.rope, 3, {}, {}};
  const std::int64_t table_rows = s.seqlen_kv + tables.offset;
  std::uniform_real_distribution<double> angle(-3, 3);
  for (std::int64_t i = 0; i < table_rows * rope_dim / 2; ++i) {
    const double x = angle(random);
    tables.cos.push_back(float(std::cos(x)));
    tables.sin.push_back(float(std::sin(x)));
  }

  const Buffer on_k = k.upload(), on_v = v.upload(), on_q = q.upload(),
               on_k_cache = k_cache.upload(), on_v_cache = v_cache.upload(),
               on_rotated_q = rotated_q.upload();
  const Buffer on_cos = Buffer::of(std::span<const float>(tables.cos)),
               on_sin = Buffer::of(std::span<const float>(tables.sin)),
               on_ends = Buffer::of(std::span<const int>(ends)),
               on_used = Buffer::of(std::span<const int>(used)),
               on_table = Buffer::of(std::span<const int>(table));
  const std::vector<int> other(used.size(), -9);
  const Buffer on_after = Buffer::of(std::span<const int>(other));
  const auto ints = [](const Buffer& buffer) { return static_cast<int*>(buffer.data()); };
  const auto floats = [](const Buffer& buffer) { return static_cast<const float*>(buffer.data()); };
  append_kv(s,
            {.k = k.on(on_k),
             .v = v.on(on_v),
             .k_cache = k_cache.on(on_k_cache),
             .v_cache = v_cache.on(on_v_cache),
             .pages = {ints(on_table), columns, pages},
             .cu_seqlens = packed ? ints(on_ends) : nullptr,
             .used_kv = ints(on_used),
             .used_kv_after = ints(c.in_place ? on_used : on_after),
             .rope = {floats(on_cos), floats(on_sin), table_rows, tables.offset},
             .q = q.on(c.in_place ? on_rotated_q : on_q),
             .rotated_q = rotated_q.on(on_rotated_q)},
            *device_);
  check(driver().cuCtxSynchronize(), "wait for the append");

  for (std::int64_t b = 0; b < s.batch; ++b) {
    const auto sequence = static_cast<std::size_t>(b);
    for (int i = 0; i < ends[sequence + 1] - ends[sequence]; ++i) {
      const std::int64_t position = used[sequence] + i;
      if (position >= s.seqlen_kv) continue;
      const std::int64_t from = packed ? 0 : b, row = packed ? ends[sequence] + i : i;
      put(rotated_q, from, row, {q, from, row}, s.num_heads_q, s.head_dim, tables, rope_dim,
          position);
      std::int64_t batch = b, to = position;
      if (paged) {
        batch = table[static_cast<std::size_t>(b * columns + position / s.page_size)];
        to = position % s.page_size;
        if (batch < 0 || batch >= pages) continue;
      }
      put(k_cache, batch, to, {k, from, row}, s.num_heads_kv, s.head_dim, tables, rope_dim,
          position);
      put(v_cache, batch, to, {v, from, row}, s.num_heads_kv, s.head_dim_v, tables, 0, position);
    }
  }
  expect_same(k_cache, on_k_cache, rope_dim > 0, "k_cache");
  expect_same(v_cache, on_v_cache, false, "v_cache");
  if (s.num_heads_q > 0) expect_same(rotated_q, on_rotated_q, true, "rotated_q");
  EXPECT_EQ((c.in_place ? on_used : on_after).to_host<int>(), after);
  if (!c.in_place) {
    EXPECT_EQ(on_used.to_host<int>(), used);
  }
}

TEST_F(AppendKvGpu, WritesWhatAPlainLoopWrites) {
  const auto sizes = [](DType dtype, std::int64_t batch, std::int64_t rows, std::int64_t bound,
                        int page_size, std::int64_t heads, int head_dim, int head_dim_v,
                        Rope rope = Rope::kNone, int rope_dim = 0, std::int64_t heads_q = 0) {
    return AppendSizes{.dtype = dtype,
                       .batch = batch,
                       .seqlen_new = rows,
                       .seqlen_kv = bound,
                       .page_size = page_size,
                       .num_heads_kv = heads,
                       .num_heads_q = heads_q,
                       .head_dim = head_dim,
                       .head_dim_v = head_dim_v,
                       .rope = rope,
                       .rope_dim = rope_dim};
  };
  constexpr auto kFp32 = DType::kFp32, kFp16 = DType::kFp16, kBf16 = DType::kBf16;
  constexpr auto kHalf = Rope::kHalf, kInterleaved = Rope::kInterleaved;
  const std::vector<AppendCase> cases = {
      {sizes(kBf16, 64, 1, 512, 16, 8, 128, 128)},
      {sizes(kBf16, 64, 1, 512, 64, 8, 128, 128, kHalf, 0, 32)},
      {sizes(kBf16, 9, 1, 300, 0, 8, 128, 128, kHalf, 0, 32), {}, false, 0, false},
      {sizes(kFp16, 5, 3, 200, 8, 2, 64, 64, kInterleaved, 0, 4), {}, true},
      {sizes(kBf16, 6, 0, 256, 32, 4, 128, 64, kHalf, 64, 8), {1, 0, 40, 7, 0, 100}, true, 8},
      {sizes(kBf16, 6, 0, 256, 256, 4, 128, 64), {1, 0, 40, 7, 0, 100}, false, 0, false},
      {sizes(kFp32, 3, 2, 64, 24, 3, 40, 72, kHalf, 24, 3)},
      {sizes(kFp32, 3, 2, 64, 0, 3, 40, 72, kInterleaved, 8, 5), {}, false, 4},
      {sizes(kFp16, 4, 5, 100, 16, 2, 72, 40, kHalf, 72, 2), {}, false, 1},  // 2-byte rows
      {sizes(kBf16, 4, 5, 100, 128, 1, 8, 8), {}, true, 2},
      {sizes(kBf16, 1, 3000, 3100, 128, 8, 128, 128, kHalf, 0, 32)},  // a prompt
      {sizes(kFp16, 2, 900, 901, 16, 8, 256, 256)},
      {sizes(kFp16, 2, 33000, 33001, 16, 1, 8, 8)},  // more work than blocks
      {sizes(kBf16, 300, 2, 64, 16, 2, 128, 128)},   // a block has two sequences
      {sizes(kFp32, 70, 0, 40, 8, 1, 16, 16), std::vector<int>(70, 1)},
  };
  unsigned seed = 1;
  for (const AppendCase& c : cases) {
    SCOPED_TRACE(fmt::format("case {}: {} pages of {}, head dims {} and {}", seed,
                             to_string(c.sizes.dtype), c.sizes.page_size, c.sizes.head_dim,
                             c.sizes.head_dim_v));
    expect_right(c, seed++);
  }
}

TEST_F(AppendKvGpu, AGraphAppendsAfterTheLastReplaysRows) {
  const AppendSizes sizes{.dtype = DType::kFp32,
                          .batch = 40,
                          .seqlen_new = 1,
                          .seqlen_kv = 16,
                          .page_size = 8,
                          .num_heads_kv = 2,
                          .head_dim = 64,
                          .head_dim_v = 64};
  std::vector<float> rows(40 * 128);
  std::vector<int> table(40 * 2), used(40);
  std::iota(table.begin(), table.end(), 0);
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = int(i % 5);
  Buffer k = Buffer::of(std::span<const float>(rows));
  const Buffer on_table = Buffer::of(std::span<const int>(table));
  Buffer on_used = Buffer::of(std::span<const int>(used));
  const Buffer k_cache(80 * 8 * 128 * 4), v_cache(80 * 8 * 128 * 4);
  const Tensor of_rows{k.data(), 128, 128, 64}, of_pages{nullptr, 8 * 128, 128, 64};
  AppendTensors tensors{.k = of_rows,
                        .v = of_rows,
                        .k_cache = of_pages,
                        .v_cache = of_pages,
                        .pages = {static_cast<const int*>(on_table.data()), 2, 80},
                        .used_kv = static_cast<const int*>(on_used.data()),
                        .used_kv_after = static_cast<int*>(on_used.data())};
  tensors.k_cache.data = k_cache.data();
  tensors.v_cache.data = v_cache.data();
  append_kv(sizes, tensors, *device_);  // compiles
  check(driver().cuCtxSynchronize(), "wait for the first call");
  on_used.copy_from_host(used.data(), used.size() * sizeof(int));
  const Stream stream;
  const Graph graph(stream,
                    [&](CUstream captured) { append_kv(sizes, tensors, *device_, captured); });
  for (int step = 0; step < 8; ++step) {
    std::fill(rows.begin(), rows.end(), float(step + 1));
    k.copy_from_host(rows.data(), rows.size() * sizeof(float));
    check(driver().cuCtxSynchronize(), "wait for a copy that `stream` does not wait for");
    graph.launch(stream.get());
    stream.synchronize();
    for (std::size_t i = 0; i < used.size(); ++i) used[i] = int(i % 5) + step + 1;
    ASSERT_EQ(on_used.to_host<int>(), used);
  }
  const std::vector<float> cache = v_cache.to_host<float>();
  for (std::size_t b = 0; b < 40; ++b)
    for (std::size_t step = 0; step < 8; ++step)
      ASSERT_EQ(cache[(b * 16 + b % 5 + step) * 128 + 77], float(step + 1)) << b;
}

}  // namespace
}  // namespace attnforge
