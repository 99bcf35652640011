#include "plan/checks/input_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "attnforge/error.h"
#include "reference/sequences.h"
#include "runtime/driver.h"

namespace attnforge {
namespace {

[[noreturn]] void refuse_append_arrays(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

// ---- 1. Reading ----

void copy_ints(const int* from, std::span<int> to, CUstream stream) {
  if (to.empty()) return;
  check(driver().cuMemcpyDtoHAsync(to.data(), reinterpret_cast<CUdeviceptr>(from), to.size_bytes(),
                                   stream),
        "copy lengths and pages from the GPU");
}

/// Nothing of a null array.
std::vector<int> copied_ints(const int* from, std::int64_t count, CUstream stream) {
  std::vector<int> ints(from == nullptr ? 0 : static_cast<std::size_t>(count));
  copy_ints(from, ints, stream);
  return ints;
}

HostTable copied_table(const PageTable& pages, std::int64_t batch, std::int64_t seqlen_kv,
                       int page_size, CUstream stream) {
  HostTable table;
  if (page_size == 0) return table;
  table.columns = (seqlen_kv + page_size - 1) / page_size;
  table.num_pages = pages.num_pages;
  const auto width = static_cast<std::size_t>(table.columns);
  table.entries.resize(static_cast<std::size_t>(batch) * width);
  for (std::int64_t i = 0; i < batch; ++i) {
    copy_ints(pages.table + i * pages.stride_batch,
              std::span(table.entries).subspan(static_cast<std::size_t>(i) * width, width), stream);
  }
  return table;
}

// ---- 2. Looking ----

/// How many rows each packed sequence has. Throws unless they follow one another in `tokens` rows.
std::vector<std::int64_t> packed_lengths(std::string_view name, std::span<const int> ends,
                                         std::int64_t tokens) {
  if (ends[0] != 0)
    refuse_append_arrays(
        fmt::format("{}[0] is {}; the first sequence begins with row 0", name, ends[0]));
  std::vector<std::int64_t> lengths(ends.size() - 1);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (ends[i + 1] < ends[i]) {
      refuse_append_arrays(
          fmt::format("{}[{}] is {}, less than the {} before it; a sequence ends after "
                      "it begins",
                      name, i + 1, ends[i + 1], ends[i]));
    }
    lengths[i] = std::int64_t{ends[i + 1]} - ends[i];
  }
  if (ends.back() > tokens) {
    refuse_append_arrays(fmt::format("{}[{}] is {}, more than the {} rows of the tensors", name,
                                     lengths.size(), ends.back(), tokens));
  }
  return lengths;
}

/// Who writes a page: which column of which sequence's row of the table.
using Writers = std::unordered_map<int, std::pair<std::size_t, std::int64_t>>;

/// Pages of a sequence's rows up to `end`, of which those from `begin` on are written.
void check_pages(const HostTable& table, int page_size, std::size_t sequence, std::int64_t begin,
                 std::int64_t end, Writers& writers) {
  for (std::int64_t j = 0; j * page_size < end; ++j) {
    const int page = table.entries[sequence * static_cast<std::size_t>(table.columns) +
                                   static_cast<std::size_t>(j)];
    const auto entry = [&] { return fmt::format("the page table's entry [{}, {}]", sequence, j); };
    if (page < 0 || page >= table.num_pages) {
      refuse_append_arrays(
          fmt::format("{} is {}, but sequence {} has rows {} to {} there; it must be a "
                      "page of the pool, 0 to {}",
                      entry(), page, sequence, j * page_size,
                      std::min((j + 1) * page_size, end) - 1, table.num_pages - 1));
    }
    if ((j + 1) * page_size <= begin) continue;
    const auto [other, is_new] = writers.try_emplace(page, sequence, j);
    if (is_new) continue;
    refuse_append_arrays(
        fmt::format("{} is page {}, which is entry [{}, {}] too, and both get new rows; "
                    "give each a page of its own",
                    entry(), page, other->second.first, other->second.second));
  }
}

}  // namespace

void check_run_arrays(const Problem& problem, const Tensors& tensors, CUstream stream) {
  if (problem.op == Op::kAppend)
    return check_arrays(problem, read_arrays(problem, tensors, stream));
  if (all_full(problem)) return;
  const std::int64_t of_q = problem.batch + (problem.lengths == Lengths::kPacked ? 1 : 0);
  const std::int64_t of_kv = problem.batch + (has_packed_keys(problem) ? 1 : 0);
  const std::vector<int> q = copied_ints(tensors.lengths.q, of_q, stream);
  const std::vector<int> kv = copied_ints(tensors.lengths.kv, of_kv, stream);
  const HostTable table = copied_table(tensors.pages, problem.batch, problem.seqlen_kv,
                                       problem.page_size, stream);
  check(driver().cuStreamSynchronize(stream), "wait for lengths and pages");
  Sequences sequences{problem, tensors};
  if (!q.empty()) sequences.tables.lengths.q = q.data();
  if (!kv.empty()) sequences.tables.lengths.kv = kv.data();
  sequences.tables.pages.table = table.entries.data();
  sequences.tables.pages.stride_batch = table.columns;
  check_sequences(sequences);
}

AppendArrays read_arrays(const Problem& p, const Tensors& tensors, CUstream stream) {
  const bool packed = p.lengths == Lengths::kPacked;
  AppendArrays arrays{
      .cu_seqlens = copied_ints(packed ? tensors.lengths.q : nullptr, p.batch + 1, stream),
      .used = copied_ints(tensors.lengths.kv, p.batch, stream),
      .pages = copied_table(tensors.pages, p.batch, p.seqlen_kv, p.page_size, stream)};
  arrays.used.resize(static_cast<std::size_t>(p.batch));  // zeros without an array
  check(driver().cuStreamSynchronize(stream), "wait for lengths and pages");
  return arrays;
}

void check_arrays(const Problem& p, const AppendArrays& arrays) {
  const std::vector<std::int64_t> added = arrays.cu_seqlens.empty()
                                              ? std::vector<std::int64_t>(
                                                    static_cast<std::size_t>(p.batch), p.seqlen_q)
                                              : packed_lengths("cu_seqlens", arrays.cu_seqlens,
                                                               total_tokens(p).q);
  Writers writers;
  for (std::size_t i = 0; i < added.size(); ++i) {
    const std::int64_t used = arrays.used[i], after = used + added[i];
    if (used < 0 || after > p.seqlen_kv) {
      refuse_append_arrays(
          fmt::format("used_kv[{}] is {}, and {} rows are appended; a sequence of this "
                      "cache has from 0 to {} rows",
                      i, used, added[i], p.seqlen_kv));
    }
    if (p.page_size == 0) continue;
    // A page that is only read may be shared.
    check_pages(arrays.pages, p.page_size, i, added[i] == 0 ? p.seqlen_kv : used, after, writers);
  }
}

}  // namespace attnforge
