// host_parts.h - what make_host_problem() is made of: the storages that a problem may have, the
// shapes of its tensors, and the steps that place them and put numbers into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/support/host_problem.h"

namespace attnforge::test {

/// Before and after what a storage has.
inline constexpr std::int64_t kGuardBytes = 4096;
enum Storage {
  kStorageQ,
  kStorageK,
  kStorageV,
  kStorageO,
  kStorageLse,
  kStorageCos,
  kStorageSin,
  kStorageLengthsQ,
  kStorageLengthsKv,
  kStorageMaskRowBegin,
  kStorageMaskColumns,
  kStorageMaskBits,
  kStorageMaskBitBlocks,
  kStorageSinks,
  kStoragePageTable,
  kStorageDout,
  kStorageDlse,
  kStorageDq,
  kStorageDk,
  kStorageDv,
  kStorageDsinks,
  kStorageKScale,
  kStorageVScale,
  kStorageQScale,
  kStorages
};

/// A tensor as it lies in memory: packed sequences are one, and a pool has its pages for sequences.
struct HostShape {
  std::int64_t batch, heads, rows;
  int columns;
  DType dtype;
  std::vector<SequenceRows> sequences;
};

HostShape shape_of_q(const HostProblem& host);
HostShape shape_of_k(const HostProblem& host);
HostShape shape_of_v(const HostProblem& host);
HostShape shape_of_o(const HostProblem& host);
/// A float for each row of each query head: lse, dlse.
HostShape shape_of_rows(const HostProblem& host);
/// Whether k, or v, of this dtype has scales, and these, of k's or v's shape: of heads a row each
/// for every sequence.
bool has_scales(const Problem& p, DType dtype);
HostShape shape_of_scales(const HostProblem& host, HostShape shape, KvScale shared);
/// Of dq, dk or dv, when that of q, k or v is `input`.
HostShape shape_of_gradient(HostShape input, const Problem& p);
/// As a row of one head.
HostShape shape_of_sinks(const Problem& p);

/// Calls visit(index of element, row of its sequence, column) for every element of a tensor, rows
/// of one head together.
template <class Visit>
void for_each_element(const HostShape& shape, const Tensor& strides, Visit&& visit) {
  for (const SequenceRows& rows : shape.sequences) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t row = 0; row < rows.count; ++row) {
        const std::int64_t at = rows.batch * strides.stride_batch + head * strides.stride_head +
                                (rows.begin + row) * strides.stride_row;
        for (int column = 0; column < shape.columns; ++column)
          visit(at + column, rows.first + row, column);
      }
    }
  }
}

/// NaN everywhere, or by turns with infinities.
void poison(std::vector<std::byte>& bytes, DType dtype, bool with_infinities);

// ---- Places: host_layout.cpp, and host_arrays.cpp of what is no tensor of rows ----

/// q, k, v, o and lse, once the lengths and pages are known.
void place_tensors(HostProblem& host, const Gaps& gaps);
/// dout and dlse, dq, dk, dv and dsinks.
void place_gradients(HostProblem& host, const Gaps& gaps);

/// The arrays of lengths, and where in q and o, k and v they say that rows are.
void place_lengths(HostProblem& host, unsigned seed);
/// Which pages the sequences have; rows_kv are then those of pages.
void place_pages(HostProblem& host, unsigned seed);
void place_block_mask(HostProblem& host, Blocks blocks, unsigned seed);
void place_rope_tables(HostProblem& host);
void place_sinks(HostProblem& host, unsigned seed);
std::int64_t rope_offset(const Problem& p);
std::int64_t rope_rows(const Problem& p);

// ---- Numbers: host_values.cpp ----

void fill_inputs(HostProblem& host, unsigned seed, Inputs inputs);
/// dout and dlse, and what gradients are added to.
void fill_gradients(HostProblem& host, unsigned seed);

}  // namespace attnforge::test
