#include "plan/input_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "attnforge/error.h"
#include "reference/sequences.h"
#include "runtime/driver.h"

namespace attnforge {
namespace {

[[noreturn]] void refuse_arrays(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void copy_ints(const int* from, std::span<int> to, CUstream stream) {
  if (to.empty()) return;
  check(driver().cuMemcpyDtoHAsync(to.data(), reinterpret_cast<CUdeviceptr>(from), to.size_bytes(),
                                   stream),
        "copy lengths and pages from the GPU");
}

/// The new rows of each sequence. Throws unless packed ones follow one another.
std::vector<std::int64_t> new_rows(const AppendSizes& sizes, const std::vector<int>& ends) {
  const auto batch = static_cast<std::size_t>(sizes.batch);
  if (ends.empty()) return std::vector<std::int64_t>(batch, sizes.seqlen_new);
  if (ends[0] != 0)
    refuse_arrays(
        fmt::format("cu_seqlens[0] is {}; the first sequence begins with row 0", ends[0]));
  std::vector<std::int64_t> rows(batch);
  for (std::size_t i = 0; i < batch; ++i) {
    if (ends[i + 1] < ends[i]) {
      refuse_arrays(
          fmt::format("cu_seqlens[{}] is {}, less than the {} before it; a sequence ends after "
                      "it begins",
                      i + 1, ends[i + 1], ends[i]));
    }
    rows[i] = std::int64_t{ends[i + 1]} - ends[i];
  }
  if (ends[batch] > sizes.tokens) {
    refuse_arrays(fmt::format("cu_seqlens[{}] is {}, more than the {} rows of k and v", batch,
                              ends[batch], sizes.tokens));
  }
  return rows;
}

/// Who writes a page: which column of which sequence's row of the table.
using Writers = std::unordered_map<int, std::pair<std::size_t, std::int64_t>>;

/// Pages of a sequence's rows up to `end`, of which those from `begin` on are written.
void check_pages(const AppendSizes& sizes, std::span<const int> row, std::size_t sequence,
                 std::int64_t begin, std::int64_t end, std::int64_t num_pages, Writers& writers) {
  for (std::int64_t j = 0; j * sizes.page_size < end; ++j) {
    const int page = row[static_cast<std::size_t>(j)];
    const std::string entry = fmt::format("the page table's entry [{}, {}]", sequence, j);
    if (page < 0 || page >= num_pages) {
      refuse_arrays(
          fmt::format("{} is {}, but sequence {} has rows {} to {} there; it must be a page of "
                      "the pool, 0 to {}",
                      entry, page, sequence, j * sizes.page_size,
                      std::min((j + 1) * sizes.page_size, end) - 1, num_pages - 1));
    }
    if ((j + 1) * sizes.page_size <= begin) continue;
    const auto [other, is_new] = writers.try_emplace(page, sequence, j);
    if (is_new) continue;
    refuse_arrays(
        fmt::format("{} is page {}, which is entry [{}, {}] too, and both get new rows; give "
                    "each a page of its own",
                    entry, page, other->second.first, other->second.second));
  }
}

}  // namespace

void check_run_arrays(const Problem& problem, const Tensors& tensors, CUstream stream) {
  if (all_full(problem)) return;
  Sequences sequences{problem, tensors.lengths, {}, tensors.pages};
  const auto read = [stream](std::vector<int>& copy, std::int64_t count, const int*& array) {
    if (array == nullptr) return;
    copy.resize(static_cast<std::size_t>(count));
    copy_ints(array, copy, stream);
    array = copy.data();
  };
  std::vector<int> q, kv, table;
  read(q, problem.batch + (problem.lengths == Lengths::kPacked ? 1 : 0), sequences.lengths.q);
  read(kv, problem.batch + (has_packed_keys(problem) ? 1 : 0), sequences.lengths.kv);
  if (has_pages(problem) && problem.batch > 0) {
    const std::int64_t width = pages_of_sequence(problem);
    table.resize(static_cast<std::size_t>(problem.batch * width));
    for (std::int64_t i = 0; i < problem.batch; ++i) {
      copy_ints(tensors.pages.table + i * tensors.pages.stride_batch,
                std::span(table).subspan(static_cast<std::size_t>(i * width),
                                         static_cast<std::size_t>(width)),
                stream);
    }
    sequences.pages.table = table.data();
    sequences.pages.stride_batch = width;
  }
  check(driver().cuStreamSynchronize(stream), "wait for lengths and pages");
  check_sequences(sequences);
}

AppendArrays read_arrays(const AppendSizes& sizes, const AppendTensors& tensors, CUstream stream) {
  const auto batch = static_cast<std::size_t>(sizes.batch);
  AppendArrays arrays;
  arrays.used.assign(batch, 0);
  if (tensors.used_kv != nullptr) copy_ints(tensors.used_kv, arrays.used, stream);
  if (tensors.cu_seqlens != nullptr) {
    arrays.cu_seqlens.resize(batch + 1);
    copy_ints(tensors.cu_seqlens, arrays.cu_seqlens, stream);
  }
  if (sizes.page_size > 0) {
    arrays.pages_of_row = (sizes.seqlen_kv + sizes.page_size - 1) / sizes.page_size;
    const auto width = static_cast<std::size_t>(arrays.pages_of_row);
    arrays.table.resize(batch * width);
    for (std::size_t i = 0; i < batch; ++i) {
      copy_ints(tensors.pages.table + static_cast<std::int64_t>(i) * tensors.pages.stride_batch,
                std::span(arrays.table).subspan(i * width, width), stream);
    }
  }
  check(driver().cuStreamSynchronize(stream), "wait for lengths and pages");
  return arrays;
}

void check_arrays(const AppendSizes& sizes, const AppendArrays& arrays, std::int64_t num_pages) {
  const std::vector<std::int64_t> added = new_rows(sizes, arrays.cu_seqlens);
  Writers writers;
  for (std::size_t i = 0; i < added.size(); ++i) {
    const std::int64_t used = arrays.used[i], after = used + added[i];
    if (used < 0 || after > sizes.seqlen_kv) {
      refuse_arrays(
          fmt::format("used_kv[{}] is {}, and {} rows are appended; a sequence of this cache "
                      "has from 0 to {} rows",
                      i, used, added[i], sizes.seqlen_kv));
    }
    if (sizes.page_size == 0) continue;
    const auto width = static_cast<std::size_t>(arrays.pages_of_row);
    // Where nothing is written, no page is: pages before are looked at all the same.
    check_pages(sizes, std::span(arrays.table).subspan(i * width, width), i,
                added[i] == 0 ? sizes.seqlen_kv : used, after, num_pages, writers);
  }
}

}  // namespace attnforge
