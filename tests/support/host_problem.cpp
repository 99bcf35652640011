// host_problem.cpp - layouts with gaps, poison, and inputs of several kinds.
#include "tests/support/host_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "attnforge/block_mask.h"
#include "reference/half.h"
#include "reference/rope.h"
#include "reference/sequences.h"

namespace attnforge::test {
namespace {

constexpr std::int64_t kGuardBytes = 4096;
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
  kStorages
};

struct Shape {
  std::int64_t batch, heads, rows;
  int columns;
  DType dtype;
  std::vector<SequenceRows> sequences;
};

/// Strides of `shape` in a row that has room for `row_heads` heads, and the elements that all of it
/// takes.
std::int64_t set_strides(const Shape& shape, Layout layout, std::int64_t row_heads,
                         const Gaps& gaps, int alignment, Tensor& to) {
  const int unit = alignment / size_bytes(shape.dtype);
  if (layout == Layout::kBhsd) {
    to.stride_row = shape.columns + gaps.row * unit;
    to.stride_head = (shape.rows + gaps.rows_after) * to.stride_row;
    to.stride_batch = row_heads * to.stride_head;
  } else {
    to.stride_head = shape.columns + gaps.head * unit;
    to.stride_row = row_heads * to.stride_head + gaps.row * unit;
    to.stride_batch = (shape.rows + gaps.rows_after) * to.stride_row;
  }
  // Strides between single things are not checked by anybody, but must be aligned like all others.
  const auto round_up = [unit](std::int64_t& stride) {
    stride = (stride + unit - 1) / unit * unit;
  };
  round_up(to.stride_row), round_up(to.stride_head), round_up(to.stride_batch);
  return shape.batch * to.stride_batch;
}

void poison(std::vector<std::byte>& bytes, DType dtype, bool with_infinities) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  const auto count = static_cast<std::int64_t>(bytes.size()) / size_bytes(dtype);
  for (std::int64_t i = 0; i < count; ++i)
    store_element(dtype, bytes.data(), i, kBad[with_infinities ? i % 3 : 0]);
}

/// A storage of `elements` of one tensor, poisoned.
void add_storage(HostProblem& host, Storage storage, std::int64_t elements, DType dtype,
                 PlacedTensor& placed) {
  placed.storage = storage;
  placed.offset_bytes = kGuardBytes + host.problem.alignment_bytes;
  auto& bytes = host.storages[storage];
  const std::int64_t size = placed.offset_bytes + elements * size_bytes(dtype) + kGuardBytes;
  bytes.resize(static_cast<std::size_t>((size + 15) / 16 * 16));
  poison(bytes, dtype, storage <= kStorageV || storage == kStorageDout);
}

/// Lengths with every edge: full, empty, one row, with pages around the end of one, then random
/// ones; packed ones as long as there is room.
std::vector<int> hard_lengths(std::int64_t count, std::int64_t seqlen, std::int64_t room,
                              unsigned seed, std::int64_t page) {
  std::mt19937 random(seed);
  std::vector<int> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t length = static_cast<std::int64_t>(random()) % (seqlen + 1);
    if (i == 0) length = seqlen;
    if (i == 1) length = 0;
    if (i == 2) length = std::min<std::int64_t>(1, seqlen);
    if (page != 0 && i >= 3 && i <= 5) length = std::min(page + i - 4, seqlen);
    length = std::min(length, room);
    room -= length;
    lengths.push_back(static_cast<int>(length));
  }
  return lengths;
}

std::vector<int> beginnings(const std::vector<int>& lengths) {
  std::vector<int> begins = {0};
  for (const int length : lengths) begins.push_back(begins.back() + length);
  return begins;
}

/// Between integers that are neither lengths nor indexes.
template <class Integer>
void place_integers(HostProblem& host, Storage storage, const std::vector<Integer>& array,
                    PlacedTensor& placed) {
  placed.storage = storage;
  placed.offset_bytes = kGuardBytes;
  auto& bytes = host.storages[storage];
  bytes.assign(static_cast<std::size_t>(2 * kGuardBytes) + array.size() * sizeof(Integer),
               std::byte{0x7f});
  std::memcpy(bytes.data() + kGuardBytes, array.data(), array.size() * sizeof(Integer));
}

bool is_present(Blocks blocks, std::int64_t row, std::int64_t column, const BlockMaskShape& shape) {
  switch (blocks) {
    case Blocks::kRandom:
    case Blocks::kNone:
      return false;
    case Blocks::kSingle:
      return row == shape.q_blocks() / 2 && column == shape.kv_blocks() / 2;
    case Blocks::kOneHotRow:
      return row == shape.q_blocks() / 2 || column == 0;
    case Blocks::kCheckerboard:
      return (row + column) % 2 == 0;
    case Blocks::kAll:
      return true;
  }
  return false;
}

/// Of three blocks one is full, one partial with bits if the problem has them, one partial without.
BlockMask with_partial_blocks(BlockMask mask, bool bits, unsigned seed) {
  if (bits) {
    std::mt19937 random(seed);
    constexpr std::int64_t kPatterns = 5;
    for (std::int64_t i = 0; i < kPatterns * mask.words_per_block(); ++i)
      mask.bits.push_back(static_cast<std::uint32_t>(random()));
    mask.bit_blocks.assign(mask.columns.size(), -1);
    for (std::size_t i = 1; i < mask.columns.size(); i += 3)
      mask.bit_blocks[i] = static_cast<int>(i % kPatterns);
  }
  for (std::size_t i = 0; i < mask.columns.size(); ++i) mask.columns[i] += i % 3 != 0 ? 1 : 0;
  return mask;
}

void place_block_mask(HostProblem& host, Blocks blocks, unsigned seed) {
  const Problem& p = host.problem;
  if (!has_block_mask(p)) return;
  const BlockMaskShape shape = block_mask_shape(p);
  std::vector<std::uint8_t> present;
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    for (std::int64_t column = 0; column < shape.kv_blocks(); ++column)
      present.push_back(is_present(blocks, row % shape.q_blocks(), column, shape) ? 1 : 0);
  }
  BlockMask mask = block_mask_from_blocks(shape, present);
  if (blocks == Blocks::kRandom)
    mask = random_block_mask(
        shape, {.density = effective_density(p), .seed = seed, .diagonal = seed % 2 == 0});
  HostTensors lists;
  set_block_mask(p, lists, with_partial_blocks(std::move(mask), p.mask_bits, seed));
  place_integers(host, kStorageMaskRowBegin, lists.mask_row_begin, host.mask_row_begin);
  place_integers(host, kStorageMaskColumns, lists.mask_columns, host.mask_columns);
  if (!p.mask_bits) return;
  place_integers(host, kStorageMaskBits, lists.mask_bits, host.mask_bits);
  place_integers(host, kStorageMaskBitBlocks, lists.mask_bit_blocks, host.mask_bit_blocks);
}

/// The arrays of lengths, and where in q and o, k and v they say that rows are.
void place_lengths(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  const Tokens tokens = total_tokens(p);
  const auto place = [&](Storage storage, std::int64_t seqlen, std::int64_t room,
                         unsigned side_seed, PlacedTensor& placed,
                         std::vector<SequenceRows>& rows) {
    const bool packed = storage == kStorageLengthsQ ? p.lengths == Lengths::kPacked
                                                    : has_packed_keys(p);
    std::vector<int> lengths(static_cast<std::size_t>(p.batch), static_cast<int>(seqlen));
    if (p.lengths != Lengths::kFixed)
      lengths = hard_lengths(p.batch, seqlen, packed ? room : p.batch * seqlen, side_seed,
                             storage == kStorageLengthsKv ? p.page_size : 0);
    const std::vector<int> begins = beginnings(lengths);
    for (std::int64_t i = 0; i < p.batch; ++i) {
      const auto at = static_cast<std::size_t>(i);
      rows.push_back({packed ? 0 : i, packed ? begins[at] : 0, lengths[at], i});
    }
    if (p.lengths == Lengths::kFixed) return;
    const std::vector<int>& array = packed ? begins : lengths;
    place_integers(host, storage, array, placed);
  };
  place(kStorageLengthsQ, p.seqlen_q, tokens.q, seed, host.lengths_q, host.rows_q);
  // One tensor of q, k and v has one kind of sequences.
  const unsigned other = p.layout == Layout::kPackedQkv ? 0 : 1000;
  place(kStorageLengthsKv, p.seqlen_kv, tokens.kv, seed + other, host.lengths_kv, host.rows_kv);
}

/// Which pages the sequences have; rows_kv are then those of pages.
void place_pages(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  if (!has_pages(p)) return;
  constexpr int kNoPage = 0x7f7f7f7f, kFree = 3;
  const std::int64_t columns = pages_of_sequence(p);
  host.num_pages = p.batch * columns + kFree;
  host.table_stride = columns + 2;
  std::vector<int> pool(static_cast<std::size_t>(host.num_pages));
  std::iota(pool.begin(), pool.end(), 0);
  std::shuffle(pool.begin(), pool.end(), std::mt19937(seed));
  std::vector<int> table(static_cast<std::size_t>(p.batch * host.table_stride), kNoPage);
  std::vector<SequenceRows> of_pages;
  for (const SequenceRows& rows : host.rows_kv) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t first = column * p.page_size;
      int& page = table[static_cast<std::size_t>(rows.sequence * host.table_stride + column)];
      page = -1;
      if (first >= rows.count) continue;
      page = pool.back();
      pool.pop_back();
      of_pages.push_back(
          {page, 0, std::min<std::int64_t>(p.page_size, rows.count - first), rows.sequence, first});
    }
  }
  host.rows_kv = of_pages;
  place_integers(host, kStoragePageTable, table, host.page_table);
}

/// As it lies in memory: packed sequences are one, and a pool has its pages for sequences.
Shape shape_of(const Problem& p, bool queries, std::int64_t heads, int columns, DType dtype,
               const std::vector<SequenceRows>& sequences, std::int64_t num_pages = 0) {
  if (num_pages > 0) return {num_pages, heads, p.page_size, columns, dtype, sequences};
  const bool packed = p.lengths == Lengths::kPacked;
  const Tokens tokens = total_tokens(p);
  const std::int64_t rows = packed ? (queries ? tokens.q : tokens.kv)
                                   : (queries ? p.seqlen_q : p.seqlen_kv);
  return {packed ? std::min<std::int64_t>(1, p.batch) : p.batch,
          heads,
          rows,
          columns,
          dtype,
          sequences};
}
Shape shape_of_q(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, true, p.num_heads_q, p.head_dim, p.dtype_q, host.rows_q);
}
Shape shape_of_k(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, false, p.num_heads_kv, p.head_dim, p.dtype_k, host.rows_kv, host.num_pages);
}
Shape shape_of_v(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, false, p.num_heads_kv, p.head_dim_v, p.dtype_v, host.rows_kv, host.num_pages);
}
Shape shape_of_o(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, true, p.num_heads_q, p.head_dim_v, p.dtype_o, host.rows_q);
}

/// Rows of one float each; a gap follows each head's.
void place_rows(HostProblem& host, Storage storage, int rows_after, PlacedTensor& placed) {
  const Shape o = shape_of_o(host);
  const std::int64_t rows = o.rows + rows_after;
  placed.strides = {nullptr, host.problem.num_heads_q * rows, 1, rows};
  placed.storage = storage;
  placed.offset_bytes = kGuardBytes;
  const std::int64_t bytes = 2 * kGuardBytes + o.batch * placed.strides.stride_batch * 4;
  host.storages[storage].resize(static_cast<std::size_t>(bytes));
  poison(host.storages[storage], DType::kFp32, storage == kStorageDlse);
}

void place_tensors(HostProblem& host, const Gaps& gaps) {
  const Problem& p = host.problem;
  const int alignment = p.alignment_bytes;
  const Shape q = shape_of_q(host), k = shape_of_k(host), v = shape_of_v(host),
              o = shape_of_o(host);
  if (p.layout == Layout::kPackedQkv) {
    const std::int64_t row_heads = p.num_heads_q + 2 * p.num_heads_kv;
    const std::int64_t elements = set_strides(q, p.layout, row_heads, gaps, alignment,
                                              host.q.strides);
    add_storage(host, kStorageQ, elements, p.dtype_q, host.q);
    host.k = host.v = host.q;
    const std::int64_t head_bytes = host.q.strides.stride_head * size_bytes(p.dtype_q);
    host.k.offset_bytes += p.num_heads_q * head_bytes;
    host.v.offset_bytes += (p.num_heads_q + p.num_heads_kv) * head_bytes;
  } else {
    const auto place = [&](Storage storage, const Shape& shape, PlacedTensor& placed) {
      const std::int64_t elements = set_strides(shape, p.layout, shape.heads, gaps, alignment,
                                                placed.strides);
      add_storage(host, storage, elements, shape.dtype, placed);
    };
    place(kStorageQ, q, host.q), place(kStorageK, k, host.k), place(kStorageV, v, host.v);
  }
  const std::int64_t o_elements = set_strides(o, p.layout, o.heads, gaps, alignment,
                                              host.o.strides);
  add_storage(host, kStorageO, o_elements, p.dtype_o, host.o);
  if (is_backward(p)) poison(host.storages[kStorageO], p.dtype_o, true);
  place_rows(host, kStorageLse, gaps.rows_after, host.lse);
}

/// Wider where there are gaps.
Gaps with_more(Gaps gaps, int more) {
  for (int* gap : {&gaps.row, &gaps.rows_after})
    if (*gap != 0) *gap += more;
  return gaps;
}

Shape shape_of_gradient(Shape shape, const Problem& p) {
  shape.dtype = gradient_dtype(p, shape.dtype);
  return shape;
}

void place_gradients(HostProblem& host, const Gaps& gaps) {
  const Problem& p = host.problem;
  if (!is_backward(p)) return;
  const auto place = [&](Storage storage, const Shape& shape, std::int64_t row_heads, int more,
                         PlacedTensor& placed) {
    const std::int64_t elements = set_strides(shape, p.layout, row_heads, with_more(gaps, more),
                                              p.alignment_bytes, placed.strides);
    add_storage(host, storage, elements, shape.dtype, placed);
  };
  place(kStorageDout, shape_of_o(host), p.num_heads_q, 1, host.dout);
  place_rows(host, kStorageDlse, with_more(gaps, 1).rows_after, host.dlse);
  const Shape q = shape_of_gradient(shape_of_q(host), p),
              k = shape_of_gradient(shape_of_k(host), p),
              v = shape_of_gradient(shape_of_v(host), p);
  const bool packed = p.layout == Layout::kPackedQkv;
  const std::int64_t row_heads = p.num_heads_q + 2 * p.num_heads_kv;
  place(kStorageDq, q, packed ? row_heads : q.heads, 2, host.dq);
  place(kStorageDk, k, packed ? row_heads : k.heads, 3, host.dk);
  place(kStorageDv, v, packed ? row_heads : v.heads, 4, host.dv);
  if (p.sinks) {
    host.dsinks.storage = kStorageDsinks;
    host.dsinks.offset_bytes = kGuardBytes + 4;
    host.storages[kStorageDsinks].resize(
        static_cast<std::size_t>(2 * kGuardBytes + p.num_heads_q * 4));
    poison(host.storages[kStorageDsinks], DType::kFp32, true);
  }
  if (!packed) return;
  // As if they were one tensor; what would be the others is poison.
  const auto skip_heads = [&](PlacedTensor& placed, std::int64_t heads, DType dtype) {
    placed.offset_bytes += heads * placed.strides.stride_head * size_bytes(dtype);
  };
  skip_heads(host.dk, p.num_heads_q, k.dtype);
  skip_heads(host.dv, p.num_heads_q + p.num_heads_kv, v.dtype);
}

std::int64_t rope_offset(const Problem& p) {
  return p.rope == Rope::kNone ? 0 : least_rope_offset(p) + 5;
}
std::int64_t rope_rows(const Problem& p) {
  return p.rope == Rope::kNone ? 0 : rope_offset(p) + p.seqlen_kv;
}

void place_rope_tables(HostProblem& host) {
  const Problem& p = host.problem;
  const HostRopeTables tables = rope_tables(effective_rope_dim(p), rope_rows(p));
  const auto first = static_cast<std::size_t>((rope_offset(p) - least_rope_offset(p)) *
                                              effective_rope_dim(p) / 2);
  const auto place = [&](Storage storage, const std::vector<float>& table, PlacedTensor& placed) {
    placed.storage = storage;
    placed.offset_bytes = kGuardBytes + 16;
    auto& bytes = host.storages[storage];
    bytes.resize(static_cast<std::size_t>(placed.offset_bytes + kGuardBytes) + table.size() * 4);
    poison(bytes, DType::kFp32, true);
    for (std::size_t i = first; i < table.size(); ++i) {
      store_element(DType::kFp32, bytes.data() + placed.offset_bytes, static_cast<std::int64_t>(i),
                    table[i]);
    }
  };
  place(kStorageCos, tables.cos, host.rope_cos);
  place(kStorageSin, tables.sin, host.rope_sin);
}

void place_sinks(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  if (!p.sinks) return;
  constexpr float kLogits[] = {5.0f, -std::numeric_limits<float>::infinity(), 2.0f, 1e30f, -3.0f,
                               8.0f};
  host.sinks.storage = kStorageSinks;
  host.sinks.offset_bytes = kGuardBytes + 4;
  auto& bytes = host.storages[kStorageSinks];
  bytes.resize(static_cast<std::size_t>(2 * kGuardBytes + p.num_heads_q * 4));
  poison(bytes, DType::kFp32, true);
  for (std::int64_t head = 0; head < p.num_heads_q; ++head) {
    const float logit = kLogits[static_cast<std::size_t>(head + seed) % std::size(kLogits)];
    store_element(DType::kFp32, bytes.data() + host.sinks.offset_bytes, head,
                  logit + 0.125f * static_cast<float>(head));
  }
}

/// Calls visit(index of element, row of its sequence, column) for every element of a tensor, rows
/// of one head together.
template <class Visit>
void for_each_element(const Shape& shape, const Tensor& strides, Visit&& visit) {
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

/// Writes value(row, column) to every element.
template <class Value>
void fill(HostProblem& host, const Shape& shape, const PlacedTensor& placed, Value&& value) {
  std::byte* data = host.storages[static_cast<std::size_t>(placed.storage)].data() +
                    placed.offset_bytes;
  for_each_element(shape, placed.strides, [&](std::int64_t at, std::int64_t row, int column) {
    store_element(shape.dtype, data, at, value(row, column));
  });
}

void fill_inputs(HostProblem& host, unsigned seed, Inputs inputs) {
  const Problem& p = host.problem;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  constexpr float kFar = 3.0f;  // |score| is about kFar^2 * sqrt(head_dim)
  const float growth = 70.0f / (std::sqrt(static_cast<float>(p.head_dim)) *
                                static_cast<float>(std::max<std::int64_t>(p.seqlen_kv, 1)));
  const auto q = [&](std::int64_t, int column) {
    const float x = normal(random);
    switch (inputs) {
      case Inputs::kStronglyNegative:
      case Inputs::kStronglyPositive:
        return kFar + 0.3f * x;
      case Inputs::kGrowingToFirst:
      case Inputs::kGrowingToLast:
        return 1 + 0.3f * x;
      case Inputs::kLarge:
        return 8 * x;
      case Inputs::kInfiniteKeys:
        return column == 0 ? std::abs(x) + 0.5f : x;
      default:
        return x;
    }
  };
  const auto k = [&](std::int64_t row, int column) {
    const float x = normal(random);
    switch (inputs) {
      case Inputs::kStronglyNegative:
        return -kFar + 0.3f * x;
      case Inputs::kStronglyPositive:
        return kFar + 0.3f * x;
      case Inputs::kGrowingToFirst:
        return growth * static_cast<float>(p.seqlen_kv - 1 - row) + 0.3f * x;
      case Inputs::kGrowingToLast:
        return growth * static_cast<float>(row) + 0.3f * x;
      case Inputs::kLarge:
        return 8 * x;
      case Inputs::kInfiniteKeys:
        return column == 0 && row % 10 == 3 ? -std::numeric_limits<float>::infinity() : x;
      case Inputs::kEqualScores:
        return 0.0f;
      default:
        return x;
    }
  };
  fill(host, shape_of_q(host), host.q, q);
  fill(host, shape_of_k(host), host.k, k);
  fill(host, shape_of_v(host), host.v, [&](std::int64_t, int) { return normal(random); });
  if (inputs != Inputs::kOddSequencesNaN) return;
  Shape odd = shape_of_v(host);
  for (SequenceRows& rows : odd.sequences) {
    if (rows.sequence % 2 == 0) rows.count = 0;
  }
  fill(host, odd, host.v,
       [](std::int64_t, int) { return std::numeric_limits<float>::quiet_NaN(); });
}

/// As a row of one head.
Shape shape_of_sinks(const Problem& p) {
  Shape shape{1, 1, 1, static_cast<int>(p.num_heads_q), DType::kFp32, {}};
  if (p.sinks) shape.sequences.push_back({0, 0, 1, 0, 0});
  return shape;
}

/// dout and dlse, and what gradients are added to.
void fill_gradients(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  if (!is_backward(p)) return;
  std::mt19937 random(seed + 7919);
  std::normal_distribution<float> normal;
  const auto any = [&](std::int64_t, int) { return normal(random); };
  fill(host, shape_of_o(host), host.dout, any);
  fill(host, shape_of(p, true, p.num_heads_q, 1, DType::kFp32, host.rows_q), host.dlse, any);
  if (p.accumulate) {
    fill(host, shape_of_gradient(shape_of_q(host), p), host.dq, any);
    fill(host, shape_of_gradient(shape_of_k(host), p), host.dk, any);
    fill(host, shape_of_gradient(shape_of_v(host), p), host.dv, any);
    if (p.sinks) fill(host, shape_of_sinks(p), host.dsinks, any);
  }
  host.gradients_before.assign(host.storages.begin() + kStorageDq,
                               host.storages.begin() + kStorageDsinks + 1);
}

/// First byte of `now` that differs from `before` outside the elements of the tensor.
std::string first_trespass(const char* name, std::vector<std::byte> now,
                           const std::vector<std::byte>& before, const Shape& shape,
                           const PlacedTensor& placed) {
  const int bytes = size_bytes(shape.dtype);
  for_each_element(shape, placed.strides, [&](std::int64_t at, std::int64_t, int) {
    const auto offset = static_cast<std::size_t>(placed.offset_bytes + at * bytes);
    std::memcpy(&now[offset], &before[offset], static_cast<std::size_t>(bytes));
  });
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == before[i]) continue;
    const std::int64_t offset = static_cast<std::int64_t>(i) - placed.offset_bytes;
    return fmt::format("{} was written outside its elements, {} bytes from its first one", name,
                       offset);
  }
  return "";
}

}  // namespace

Tensors HostProblem::tensors() {
  std::vector<void*> bases;
  for (auto& storage : storages) bases.push_back(storage.data());
  return tensors(bases);
}

Tensors HostProblem::tensors(std::span<void* const> bases) const {
  const auto at = [&](const PlacedTensor& placed) {
    Tensor tensor = placed.strides;
    tensor.data = static_cast<std::byte*>(bases[static_cast<std::size_t>(placed.storage)]) +
                  placed.offset_bytes;
    return tensor;
  };
  const Tensor of_lse = at(lse);
  const auto table = [&](const PlacedTensor& placed) {
    return problem.rope == Rope::kNone ? nullptr : static_cast<const float*>(at(placed).data);
  };
  const auto lengths = [&](const PlacedTensor& placed) {
    return problem.lengths == Lengths::kFixed ? nullptr : static_cast<const int*>(at(placed).data);
  };
  const auto list = [&](const PlacedTensor& placed, bool there) {
    return there ? static_cast<const int*>(at(placed).data) : nullptr;
  };
  const bool masked = has_block_mask(problem), backward = is_backward(problem);
  const Tensor of_dlse = at(dlse);
  return {.q = at(q),
          .k = at(k),
          .v = at(v),
          .o = at(o),
          .lse = {.data = problem.lse || backward ? static_cast<float*>(of_lse.data) : nullptr,
                  .stride_batch = of_lse.stride_batch,
                  .stride_head = of_lse.stride_head},
          .rope = {.cos = table(rope_cos),
                   .sin = table(rope_sin),
                   .rows = rope_rows(problem),
                   .offset = rope_offset(problem)},
          .lengths = {.q = lengths(lengths_q), .kv = lengths(lengths_kv)},
          .block_mask = {.row_begin = list(mask_row_begin, masked),
                         .columns = list(mask_columns, masked),
                         .bits = reinterpret_cast<const std::uint32_t*>(
                             list(mask_bits, problem.mask_bits)),
                         .bit_blocks = list(mask_bit_blocks, problem.mask_bits)},
          .sinks = problem.sinks ? static_cast<const float*>(at(sinks).data) : nullptr,
          .pages = {.table = list(page_table, has_pages(problem)),
                    .stride_batch = table_stride,
                    .num_pages = num_pages},
          .gradients = {.dout = backward ? at(dout) : Tensor(),
                        .dq = backward ? at(dq) : Tensor(),
                        .dk = backward ? at(dk) : Tensor(),
                        .dv = backward ? at(dv) : Tensor(),
                        .dlse = {.data = problem.dlse ? static_cast<float*>(of_dlse.data) : nullptr,
                                 .stride_batch = of_dlse.stride_batch,
                                 .stride_head = of_dlse.stride_head},
                        .dsinks = backward && problem.sinks ? static_cast<float*>(at(dsinks).data)
                                                            : nullptr}};
}

std::string HostProblem::trespass() const {
  if (is_backward(problem)) {
    const Shape shapes[] = {shape_of_gradient(shape_of_q(*this), problem),
                            shape_of_gradient(shape_of_k(*this), problem),
                            shape_of_gradient(shape_of_v(*this), problem), shape_of_sinks(problem)};
    const PlacedTensor* placed[] = {&dq, &dk, &dv, &dsinks};
    constexpr const char* kNames[] = {"dq", "dk", "dv", "dsinks"};
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      std::string found = first_trespass(kNames[i], storages[kStorageDq + i], gradients_before[i],
                                         shapes[i], *placed[i]);
      if (!found.empty()) return found;
    }
    return "";
  }
  const Shape shape = shape_of_o(*this);
  std::string found = first_trespass("o", storages[kStorageO], poisoned_o, shape, o);
  if (!found.empty()) return found;
  Shape lse_shape = shape_of(problem, true, problem.num_heads_q, 1, DType::kFp32, rows_q);
  if (!problem.lse) lse_shape.sequences.clear();
  return first_trespass("lse", storages[kStorageLse], poisoned_lse, lse_shape, lse);
}

void HostProblem::poison_outputs() {
  if (is_backward(problem)) {
    std::ranges::copy(gradients_before, storages.begin() + kStorageDq);
    return;
  }
  storages[kStorageO] = poisoned_o;
  storages[kStorageLse] = poisoned_lse;
}

HostProblem make_host_problem(const Problem& problem, unsigned seed, Inputs inputs,
                              const Gaps& gaps, Blocks blocks) {
  HostProblem host;
  host.problem = problem;
  host.storages.resize(kStorages);
  place_lengths(host, seed);
  place_pages(host, seed);
  place_tensors(host, gaps);
  place_rope_tables(host);
  place_block_mask(host, blocks, seed);
  place_sinks(host, seed);
  host.poisoned_o = host.storages[kStorageO];
  host.poisoned_lse = host.storages[kStorageLse];
  fill_inputs(host, seed, inputs);
  place_gradients(host, gaps);
  fill_gradients(host, seed);
  if (is_backward(problem) && problem.score.empty() && problem.mask.empty())
    set_forward_outputs(host);
  return host;
}

void set_forward_outputs(HostProblem& host, const CodeFunctions& code) {
  const Problem& p = host.problem;
  const Tensors tensors = host.tensors();
  const Sequences sequences = sequences_of(p, tensors);
  const Reference forward = reference_attention(p, tensors, all_rows(sequences), code);
  for (std::size_t i = 0; i < forward.rows.size(); ++i) {
    const QueryRow row = place_of(sequences, forward.rows[i]);
    const std::int64_t of_o = row.batch * tensors.o.stride_batch +
                              row.head * tensors.o.stride_head + row.query * tensors.o.stride_row;
    for (int d = 0; d < p.head_dim_v; ++d) {
      const std::size_t at = i * static_cast<std::size_t>(p.head_dim_v) +
                             static_cast<std::size_t>(d);
      store_element(p.dtype_o, tensors.o.data, of_o + d, static_cast<float>(forward.o[at]));
    }
    tensors.lse.data[row.batch * tensors.lse.stride_batch + row.head * tensors.lse.stride_head +
                     row.query] = static_cast<float>(forward.lse[i]);
  }
}

}  // namespace attnforge::test
