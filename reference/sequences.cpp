#include "reference/sequences.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "attnforge/block_mask.h"
#include "attnforge/error.h"
#include "reference/parts/pages.h"
#include "reference/parts/scales.h"
#include "reference/split_mix.h"
#include "reference/visible.h"

namespace attnforge {
namespace {

/// The lengths of one side, q or kv.
struct Side {
  const int* array;
  std::int64_t seqlen, tokens;
  const char* name;
  bool packed;
};

Side side_q(const Sequences& s) {
  const std::int64_t tokens = s.tables.lengths.tokens_q;
  return {s.tables.lengths.q, s.problem.seqlen_q, tokens != 0 ? tokens : total_tokens(s.problem).q,
          "q", s.problem.lengths == Lengths::kPacked};
}
Side side_kv(const Sequences& s) {
  const std::int64_t tokens = s.tables.lengths.tokens_kv;
  return {s.tables.lengths.kv, s.problem.seqlen_kv,
          tokens != 0 ? tokens : total_tokens(s.problem).kv, "kv", has_packed_keys(s.problem)};
}

/// Row at which a packed sequence begins; the one after the last is the end.
std::int64_t packed_begin(const Side& side, std::int64_t sequence) {
  ATTNFORGE_ASSERT(side.array != nullptr, "packed sequences come with their arrays");
  return side.array[sequence];
}

std::int64_t length_of(const Problem& p, const Side& side, std::int64_t sequence) {
  if (side.packed) return packed_begin(side, sequence + 1) - packed_begin(side, sequence);
  const bool used = p.lengths != Lengths::kFixed && side.array != nullptr;
  return used ? side.array[sequence] : side.seqlen;
}

/// Rows before the sequence in its batch.
std::int64_t begin_of(const Side& side, std::int64_t sequence) {
  return side.packed ? packed_begin(side, sequence) : 0;
}

std::int64_t batch_of(const Side& side, std::int64_t sequence) {
  return side.packed ? 0 : sequence;
}

void check_side(const Problem& p, const Side& side) {
  if (side.array == nullptr) {
    if (!side.packed) return;
    refuse_input("lengths.{} is null, but the problem says lengths=packed", side.name);
  }
  if (side.packed && side.array[0] != 0)
    refuse_input("lengths.{}[0]={} must be 0", side.name, side.array[0]);
  for (std::int64_t i = 0; i < p.batch; ++i) {
    const std::int64_t length = length_of(p, side, i);
    if (length >= 0 && length <= side.seqlen) continue;
    refuse_input("lengths.{}: sequence {} has {} rows; it may have 0 to seqlen_{}={}", side.name, i,
                 length, side.name, side.seqlen);
  }
  if (side.packed && side.array[p.batch] > side.tokens) {
    refuse_input("lengths.{}[{}]={} is more than the {} rows that there are", side.name, p.batch,
                 side.array[p.batch], side.tokens);
  }
}

void check_sides(const Sequences& sequences) {
  check_side(sequences.problem, side_q(sequences));
  check_side(sequences.problem, side_kv(sequences));
}

void advance(Tensor& tensor, DType dtype, std::int64_t batch, std::int64_t rows) {
  if (tensor.data == nullptr) return;
  tensor.data = static_cast<std::byte*>(tensor.data) +
                bytes_of(dtype, batch * tensor.stride_batch + rows * tensor.stride_row);
}

std::uint64_t next(std::uint64_t& state) { return mixed(state += kSplitMixStep); }

/// Numbers whose logarithms are spread like a bell, from 16 to 2^12: whole ones, for the same
/// lengths on every machine.
std::vector<std::int64_t> random_weights(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> weights;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = next(seed);
    int doublings = 0;
    for (int place = 0; place < 7; ++place) doublings += static_cast<int>(bits >> place & 1);
    weights.push_back(static_cast<std::int64_t>(16 + (bits >> 32) % 16) << doublings);
  }
  return weights;
}

/// Lengths in proportion to the weights, but the largest gets all it may have, of `tokens` in all.
std::vector<std::int64_t> packed_lengths(const std::vector<std::int64_t>& weights,
                                         std::int64_t seqlen, std::int64_t tokens) {
  const std::size_t count = weights.size();
  std::vector<std::int64_t> lengths(count, 0);
  if (count == 0) return lengths;
  const auto largest = static_cast<std::size_t>(std::max_element(weights.begin(), weights.end()) -
                                                weights.begin());
  lengths[largest] = std::min(seqlen, tokens);
  std::int64_t left = tokens - lengths[largest], all = 0;
  for (std::size_t i = 0; i < count; ++i) all += i == largest ? 0 : weights[i];
  const std::int64_t shared = left;
  for (std::size_t i = 0; i < count && all > 0; ++i) {
    if (i == largest) continue;
    lengths[i] = std::min(seqlen, shared * weights[i] / all);
    left -= lengths[i];
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t more = std::min(left, seqlen - lengths[i]);
    lengths[i] += more;
    left -= more;
  }
  return lengths;
}

std::vector<int> beginnings(const std::vector<std::int64_t>& lengths) {
  std::vector<int> begins = {0};
  for (const std::int64_t length : lengths)
    begins.push_back(begins.back() + static_cast<int>(length));
  return begins;
}

/// An eighth to all of the rows each, as callers have them; of the first at least half, so that one
/// is long.
std::vector<int> used_lengths(std::int64_t count, std::int64_t seqlen, std::uint64_t seed) {
  std::vector<int> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t part = i == 0 ? 2 : 8, least = (seqlen + part - 1) / part;
    const auto choices = static_cast<std::uint64_t>(seqlen - least + 1);
    lengths.push_back(static_cast<int>(least) + static_cast<int>(next(seed) % choices));
  }
  return lengths;
}

/// Visible pairs of one query head and queries first to end - 1, which are in one row of blocks.
std::int64_t pairs_of_block_row(const Problem& one, const MaskRows& mask, std::int64_t sequence,
                                std::int64_t head, std::int64_t first, std::int64_t end) {
  const MaskRow row = mask.row(sequence, head, first);
  std::int64_t pairs = 0;
  for (std::size_t entry = 0; entry < row.columns.size(); ++entry) {
    const KeyRange keys = row.keys_of(entry, one.seqlen_kv);
    // Windows move with the query: what the first and the last one see, all do.
    const bool alike = !row.has_bits(entry) && visible_keys(one, first).contains(keys.last) &&
                       visible_keys(one, end - 1).contains(keys.first);
    if (alike) {
      pairs += (end - first) * (keys.last - keys.first + 1);
      continue;
    }
    for (std::int64_t query = first; query < end; ++query)
      pairs += mask.row(sequence, head, query).count(entry, visible_keys(one, query));
  }
  return pairs;
}

/// Pairs that the block mask and the window let through, of all heads.
std::int64_t pairs_of_mask(const Sequences& sequences, const MaskRows& mask,
                           std::int64_t sequence) {
  const Problem one = problem_of_sequence(sequences, sequence);
  const std::int64_t heads_of_mask = one.num_heads_q / one.mask_heads, block = one.mask_block_q;
  std::int64_t pairs = 0;
  for (std::int64_t head = 0; head < one.num_heads_q; head += heads_of_mask) {
    for (std::int64_t query = 0; query < one.seqlen_q; query += block)
      pairs += pairs_of_block_row(one, mask, sequence, head, query,
                                  std::min(query + block, one.seqlen_q));
  }
  return pairs * heads_of_mask;
}

}  // namespace

Sequences sequences_of(const Problem& problem, const Tensors& tensors) {
  return {problem, tensors};
}

Sequences sequences_of(const Problem& problem, const HostTensors& host) {
  return {problem,
          {.lengths = {.q = host.lengths_q.data(), .kv = host.lengths_kv.data()},
           .block_mask = {.row_begin = host.mask_row_begin.data(),
                          .columns = host.mask_columns.data(),
                          .bits = host.mask_bits.data(),
                          .bit_blocks = host.mask_bit_blocks.data()},
           .pages = page_table_of(problem, host)}};
}

bool all_full(const Problem& problem) {
  return problem.lengths == Lengths::kFixed || !is_attention(problem);
}

Problem problem_of_sequence(const Sequences& sequences, std::int64_t index) {
  Problem one = sequences.problem;
  one.lengths = Lengths::kFixed;
  one.tokens_q = one.tokens_kv = one.page_size = 0;
  one.batch = one.mask_batch = 1;
  one.seqlen_q = length_of(sequences.problem, side_q(sequences), index);
  one.seqlen_kv = length_of(sequences.problem, side_kv(sequences), index);
  if (one.layout == Layout::kPackedQkv) one.layout = Layout::kBshd;  // says nothing of strides
  return one;
}

MaskRows mask_rows_of(const Sequences& sequences) {
  const BlockMaskRef& lists = sequences.tables.block_mask;
  if (!has_block_mask(sequences.problem)) return {};
  if (lists.row_begin == nullptr)
    refuse_input("reference: block_mask.row_begin is null; give the lists in host memory");
  return {sequences.problem, lists};
}

Sequence sequence_of(const Problem& problem, const Tensors& tensors, std::int64_t index) {
  const Sequences all = sequences_of(problem, tensors);
  Sequence one{problem_of_sequence(all, index), tensors, mask_rows_of(all).of_sequence(index)};
  const std::int64_t batch = batch_of(side_q(all), index);
  const std::int64_t begin_q = begin_of(side_q(all), index);
  const std::int64_t begin_kv = begin_of(side_kv(all), index);
  advance(one.tensors.q, problem.dtype_q, batch, begin_q);
  advance(one.tensors.o, problem.dtype_o, batch, begin_q);
  one.tensors.q_scale = scales_of_sequence(problem.kv_scale, one.tensors.q_scale, index, batch,
                                           begin_q);
  if (!has_pages(problem)) {
    advance(one.tensors.k, problem.dtype_k, batch, begin_kv);
    advance(one.tensors.v, problem.dtype_v, batch, begin_kv);
    for (const auto& [scales, shared] : {std::pair(&one.tensors.k_scale, problem.kv_scale),
                                         {&one.tensors.v_scale, scale_of_v(problem)}})
      *scales = scales_of_sequence(shared, *scales, index, batch, begin_kv);
  }
  if (one.tensors.lse.data != nullptr)
    one.tensors.lse.data += batch * tensors.lse.stride_batch + begin_q;
  if (is_backward(problem)) {
    Gradients& of_one = one.tensors.gradients;
    advance(of_one.dout, problem.dtype_o, batch, begin_q);
    advance(of_one.dq, gradient_dtype(problem, problem.dtype_q), batch, begin_q);
    advance(of_one.dk, gradient_dtype(problem, problem.dtype_k), batch, begin_kv);
    advance(of_one.dv, gradient_dtype(problem, problem.dtype_v), batch, begin_kv);
    if (of_one.dlse.data != nullptr) of_one.dlse.data += batch * of_one.dlse.stride_batch + begin_q;
  }
  one.tensors.lengths = {};
  one.tensors.block_mask = {};  // its rows are those of the longest sequence
  if (has_pages(problem)) gather_pages(problem, tensors, index, one);
  return one;
}

QueryRow place_of(const Sequences& sequences, const QueryRow& row) {
  const Side side = side_q(sequences);
  return {.batch = batch_of(side, row.batch),
          .head = row.head,
          .query = row.query + begin_of(side, row.batch)};
}

std::vector<QueryRow> all_rows(const Sequences& sequences) {
  const Problem& problem = sequences.problem;
  std::vector<QueryRow> rows;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    const std::int64_t count = length_of(problem, side_q(sequences), batch);
    for (std::int64_t head = 0; head < problem.num_heads_q; ++head) {
      for (std::int64_t query = 0; query < count; ++query) rows.push_back({batch, head, query});
    }
  }
  return rows;
}

std::int64_t total_queries(const Sequences& sequences) {
  const Problem& problem = sequences.problem;
  if (all_full(problem)) return problem.batch * problem.seqlen_q;
  std::int64_t queries = 0;
  for (std::int64_t i = 0; i < problem.batch; ++i)
    queries += length_of(problem, side_q(sequences), i);
  return queries;
}

std::int64_t total_keys(const Sequences& sequences) { return total_queries(transposed(sequences)); }

Sequences transposed(const Sequences& sequences) {
  Sequences result = sequences;
  Problem& p = result.problem;
  const Window window = effective_window(p);
  p.op = Op::kForward;
  p.causal = false;
  p.window_left = window.right;
  p.window_right = window.left;
  std::swap(p.seqlen_q, p.seqlen_kv);
  std::swap(p.tokens_q, p.tokens_kv);
  std::swap(result.tables.lengths.q, result.tables.lengths.kv);
  std::swap(result.tables.lengths.tokens_q, result.tables.lengths.tokens_kv);
  p.head_dim *= static_cast<int>(p.num_heads_q / p.num_heads_kv);
  p.num_heads_q = p.num_heads_kv;
  return result;
}

double visible_pairs(const Sequences& sequences) {
  const Problem& problem = sequences.problem;
  const bool masked = has_block_mask(problem);
  const MaskRows mask = mask_rows_of(sequences);
  const bool alike = all_full(problem) && (!masked || problem.mask_batch == 1);
  const std::int64_t count = alike ? std::min<std::int64_t>(1, problem.batch) : problem.batch;
  double pairs = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Problem one = problem_of_sequence(sequences, i);
    one.mask.clear();
    pairs += static_cast<double>(masked ? pairs_of_mask(sequences, mask, i)
                                        : visible_pairs(one) * problem.num_heads_q);
  }
  return alike ? pairs * static_cast<double>(problem.batch) : pairs;
}

double flops(const Sequences& sequences) {
  return flops_of_pairs(sequences.problem, visible_pairs(sequences));
}

double flops(const Problem& problem, const HostTensors& host) {
  check_tables(problem, host);
  return flops(sequences_of(problem, host));
}

void check_sequences(const Sequences& sequences) {
  if (all_full(sequences.problem)) return;
  check_sides(sequences);
  if (has_pages(sequences.problem)) check_page_table(sequences);
}

void check_lengths(const Problem& problem, const HostTensors& host) {
  if (all_full(problem)) return;
  const auto check_size = [&](const char* name, std::size_t size, bool packed) {
    const std::size_t wanted = static_cast<std::size_t>(problem.batch) + (packed ? 1 : 0);
    if (size == wanted || (size == 0 && !packed)) return;
    refuse_input("lengths.{} has {} numbers in place of {}", name, size, wanted);
  };
  check_size("q", host.lengths_q.size(), problem.lengths == Lengths::kPacked);
  check_size("kv", host.lengths_kv.size(), has_packed_keys(problem));
  check_sides(sequences_of(problem, host));
}

void check_tables(const Problem& problem, const HostTensors& host) {
  if (!is_attention(problem)) return;
  check_lengths(problem, host);
  if (has_pages(problem)) {
    const auto wanted = static_cast<std::size_t>(problem.batch * pages_of_sequence(problem));
    if (host.page_table.size() != wanted) {
      refuse_input("pages.table has {} numbers in place of {}", host.page_table.size(), wanted);
    }
    check_page_table(sequences_of(problem, host));
  }
  if (has_block_mask(problem)) block_mask_of(problem, host);  // checks it
}

void set_random_sequences(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  const Problem& p = problem;
  if (p.lengths == Lengths::kUsed) {
    host.lengths_q = used_lengths(p.batch, p.seqlen_q, 2 * seed);
    host.lengths_kv = used_lengths(p.batch, p.seqlen_kv, 2 * seed + 1);
  }
  if (p.lengths != Lengths::kPacked) return;
  // A sequence of many queries has many keys: the same weights for both.
  const std::vector<std::int64_t> weights = random_weights(p.batch, seed);
  const Tokens tokens = total_tokens(p);
  host.lengths_q = beginnings(packed_lengths(weights, p.seqlen_q, tokens.q));
  host.lengths_kv = has_packed_keys(p) ? beginnings(packed_lengths(weights, p.seqlen_kv, tokens.kv))
                                       : used_lengths(p.batch, p.seqlen_kv, 2 * seed + 1);
}

void set_random_tables(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  if (!is_attention(problem)) return;
  set_random_sequences(problem, host, seed);
  set_random_pages(problem, host, seed);
  set_random_block_mask(problem, host, seed);
}

}  // namespace attnforge
