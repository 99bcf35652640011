#include "reference/parts/pages.h"

#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "reference/parts/scales.h"
#include "reference/split_mix.h"

namespace attnforge {
namespace {

/// Copies the rows of one of k and v after what `to` has, and says how they lie from there on.
Tensor append_rows(const Problem& p, const Tensor& pool, DType dtype, int head_dim,
                   const int* pages, std::int64_t keys, std::vector<std::byte>& to) {
  const std::int64_t head_bytes = bytes_of(dtype, head_dim);
  for (std::int64_t key = 0; key < keys; ++key) {
    const std::int64_t row = pages[key / p.page_size] * pool.stride_batch +
                             key % p.page_size * pool.stride_row;
    for (std::int64_t head = 0; head < p.num_heads_kv; ++head) {
      const auto* const from = static_cast<const std::byte*>(pool.data) +
                               bytes_of(dtype, row + head * pool.stride_head);
      to.insert(to.end(), from, from + head_bytes);
    }
  }
  return {.stride_batch = keys * p.num_heads_kv * head_dim,
          .stride_row = p.num_heads_kv * head_dim,
          .stride_head = head_dim};
}

/// The same of scales of rows; `columns` are those of k or v.
ScaleTensor append_scales(const Problem& p, const ScaleTensor& pool, int columns, const int* pages,
                          std::int64_t keys, std::vector<std::byte>& to) {
  const std::int64_t each = scales_of_row(p, columns);
  to.resize((to.size() + 3) / 4 * 4);
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t head = 0; head < p.num_heads_kv; ++head) {
      const float* const from = pool.data + pages[key / p.page_size] * pool.stride_batch +
                                key % p.page_size * pool.stride_row + head * pool.stride_head;
      const auto bytes = std::as_bytes(std::span(from, static_cast<std::size_t>(each)));
      to.insert(to.end(), bytes.begin(), bytes.end());
    }
  }
  return {.stride_row = p.num_heads_kv * each, .stride_head = each};
}

}  // namespace

PageTable page_table_of(const Problem& problem, const HostTensors& host) {
  if (!has_pages(problem)) return {};
  const std::int64_t page_bytes = bytes_of(
      problem.dtype_k, problem.page_size * problem.num_heads_kv * problem.head_dim);
  // Tables alone are those of a pool that is made up.
  const auto bytes = static_cast<std::int64_t>(host.k.size());
  return {.table = host.page_table.data(),
          .stride_batch = pages_of_sequence(problem),
          .num_pages = bytes == 0 ? pages_of_pool(problem) : bytes / page_bytes};
}

void check_page_table(const Sequences& sequences) {
  const Problem& p = sequences.problem;
  const PageTable& pages = sequences.tables.pages;
  for (std::int64_t i = 0; i < p.batch; ++i) {
    const std::int64_t keys = problem_of_sequence(sequences, i).seqlen_kv;
    if (keys == 0) continue;
    if (pages.table == nullptr)
      refuse_input("pages.table is null, but the problem says page_size={}", p.page_size);
    for (std::int64_t column = 0; column * p.page_size < keys; ++column) {
      const int page = pages.table[i * pages.stride_batch + column];
      if (0 <= page && page < pages.num_pages) continue;
      refuse_input(
          "pages.table: sequence {} of {} keys has page {} in column {}; it must be from 0 to {}, "
          "the pages of the pool{}",
          i, keys, page, column, pages.num_pages - 1,
          page == -1 ? " (-1 is for columns after the last key)" : "");
    }
  }
}

void gather_pages(const Problem& problem, const Tensors& tensors, std::int64_t index,
                  Sequence& one) {
  const std::int64_t keys = one.problem.seqlen_kv;
  const int* const pages = keys == 0 ? nullptr
                                     : tensors.pages.table + index * tensors.pages.stride_batch;
  auto rows = std::make_shared<std::vector<std::byte>>();
  rows->reserve(static_cast<std::size_t>(keys * problem.num_heads_kv *
                                         (bytes_of(problem.dtype_k, problem.head_dim) +
                                          bytes_of(problem.dtype_v, problem.head_dim_v))));
  one.tensors.k = append_rows(problem, tensors.k, problem.dtype_k, problem.head_dim, pages, keys,
                              *rows);
  const std::size_t end_of_k = rows->size();
  one.tensors.v = append_rows(problem, tensors.v, problem.dtype_v, problem.head_dim_v, pages, keys,
                              *rows);
  struct Scales {
    ScaleTensor* of;
    DType dtype;
    int columns;
    KvScale shared;
  };
  std::vector<std::pair<ScaleTensor*, std::size_t>> gathered;
  const Scales of_k{&one.tensors.k_scale, problem.dtype_k, problem.head_dim, problem.kv_scale},
      of_v{&one.tensors.v_scale, problem.dtype_v, problem.head_dim_v, scale_of_v(problem)};
  for (const Scales& scales : {of_k, of_v}) {
    if (scales.shared < KvScale::kToken) {
      *scales.of = scales_of_sequence(scales.shared, *scales.of, index, 0, 0);
    } else if (is_low_bit(scales.dtype)) {
      *scales.of = append_scales(problem, *scales.of, scales.columns, pages, keys, *rows);
      const auto bytes = static_cast<std::size_t>(keys * scales.of->stride_row * 4);
      gathered.emplace_back(scales.of, rows->size() - bytes);
    }
  }
  one.tensors.k.data = rows->data();
  one.tensors.v.data = rows->data() + end_of_k;
  for (const auto& [scales, begin] : gathered)
    scales->data = reinterpret_cast<float*>(rows->data() + begin);
  one.tensors.pages = {};
  one.gathered = std::move(rows);
}

void set_random_pages(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  check_lengths(problem, host);
  if (!has_pages(problem)) return;
  const Sequences sequences = sequences_of(problem, host);
  std::vector<int> pool(static_cast<std::size_t>(pages_of_pool(problem)));
  std::iota(pool.begin(), pool.end(), 0);
  std::uint64_t state = seed;
  for (std::size_t i = pool.size(); i > 1; --i)
    std::swap(pool[i - 1], pool[mixed(state += kSplitMixStep) % i]);
  const std::int64_t columns = pages_of_sequence(problem);
  host.page_table.assign(static_cast<std::size_t>(problem.batch * columns), -1);
  auto page = pool.begin();
  for (std::int64_t i = 0; i < problem.batch; ++i) {
    const std::int64_t keys = problem_of_sequence(sequences, i).seqlen_kv;
    for (std::int64_t column = 0; column * problem.page_size < keys; ++column)
      host.page_table[i * columns + column] = *page++;
  }
}

}  // namespace attnforge
