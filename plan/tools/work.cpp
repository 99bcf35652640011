// work.cpp - counts the pairs that a run computes: windows and blocks by their sizes, what else a
// mask's text hides pair by pair, as long as there are not too many.
#include "attnforge/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "attnforge/block_mask.h"
#include "generator/shape.h"
#include "generator/tensors/operands.h"
#include "generator/user_code/code_operands.h"
#include "generator/user_code/mask_rule.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/user_code.h"
#include "reference/parallel.h"
#include "reference/sequences.h"

namespace attnforge {
namespace {

using Arrays = std::span<const std::span<const std::byte>>;

// A second of one core: pairs that a text is asked of, and operations of it on all of them.
constexpr std::int64_t kMostAsked = 1 << 24, kMostOperations = 1 << 28;
constexpr std::size_t kMostArrayBytes = std::size_t{1} << 28;  // that are made up

/// The keys that windows of a text and of the problem let a query see.
KeyRange keys_within(const KeyBounds& bounds, const Problem& one, std::int64_t query) {
  const std::int64_t position = query + one.seqlen_kv - one.seqlen_q;
  return {bounds.left ? std::max<std::int64_t>(0, position - *bounds.left) : 0,
          bounds.right ? std::min(one.seqlen_kv - 1, position + *bounds.right) : one.seqlen_kv - 1};
}

/// One sequence of a run whose text has to be asked.
class AskedSequence {
 public:
  AskedSequence(const Sequences& sequences, std::int64_t index, const MaskRows& mask,
                const MaskRule& rule)
      : one_(problem_of_sequence(sequences, index)),
        bounds_(key_bounds(one_)),
        mask_(mask),
        rule_(rule),
        index_(index) {}

  /// Pairs of a head that the text is asked of.
  std::int64_t asked(std::int64_t head) const {
    if (!has_block_mask(one_)) return visible_pairs(one_);
    std::int64_t pairs = 0;
    for (std::int64_t query = 0; query < one_.seqlen_q; query += one_.mask_block_q) {
      const MaskRow row = mask_.row(index_, head, query);
      for (const int column : row.columns)
        pairs += column % 2 * std::int64_t{one_.mask_block_q} * one_.mask_block_kv;
    }
    return pairs;
  }

  std::int64_t visible(std::int64_t head) const {
    constexpr std::int64_t kRows = 64;
    std::atomic<std::int64_t> pairs{0};
    parallel_for((one_.seqlen_q + kRows - 1) / kRows, 0, [&](std::int64_t piece) {
      const std::int64_t end = std::min(one_.seqlen_q, (piece + 1) * kRows);
      std::int64_t sum = 0;
      for (std::int64_t query = piece * kRows; query < end; ++query) sum += of_query(head, query);
      pairs += sum;
    });
    return pairs;
  }

 private:
  std::int64_t of_query(std::int64_t head, std::int64_t query) const {
    const KeyRange range = keys_within(bounds_, one_, query);
    if (!has_block_mask(one_)) return asked_of(head, query, range, nullptr);
    const MaskRow row = mask_.row(index_, head, query);
    std::int64_t pairs = 0;
    for (std::size_t entry = 0; entry < row.columns.size(); ++entry) {
      if (row.columns[entry] % 2 == 0) {
        pairs += row.count(entry, range);
        continue;
      }
      const KeyRange block = row.keys_of(entry, one_.seqlen_kv);
      pairs += asked_of(head, query,
                        {std::max(range.first, block.first), std::min(range.last, block.last)},
                        row.has_bits(entry) ? &row : nullptr);
    }
    return pairs;
  }
  std::int64_t asked_of(std::int64_t head, std::int64_t query, KeyRange range,
                        const MaskRow* bits) const {
    std::int64_t pairs = 0;
    for (std::int64_t key = range.first; key <= range.last; ++key) {
      pairs += (bits == nullptr || bits->contains(key)) &&
                       rule_.sees({.batch = index_, .head = head, .q = query, .k = key})
                   ? 1
                   : 0;
    }
    return pairs;
  }

  Problem one_;
  KeyBounds bounds_;
  const MaskRows& mask_;
  const MaskRule& rule_;
  std::int64_t index_;
};

/// The work of a run whose tables are all there, and whose text is not windows alone.
Work work_of_text(const Sequences& sequences, Arrays arrays) {
  const Problem& p = sequences.problem;
  const MaskRows mask = mask_rows_of(sequences);
  // Heads of one mask and one text are alike, and so may be sequences.
  const std::int64_t heads = mask_depends_on(p, "head") ? p.num_heads_q
                             : has_block_mask(p)        ? std::int64_t{p.mask_heads}
                                                        : std::int64_t{1};
  const bool alike = all_full(p) && !mask_depends_on(p, "batch") &&
                     (!has_block_mask(p) || p.mask_batch == 1);
  const std::int64_t count = alike ? std::min<std::int64_t>(1, p.batch) : p.batch;
  std::int64_t asked = 0;
  double pairs = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    // Sizes that the text names are those of the sequence.
    const Problem one = problem_of_sequence(sequences, i);
    const std::string code = mask_code(one);
    if (code.empty()) {  // with lengths that are known it has windows alone
      pairs += static_cast<double>(visible_pairs(one) * heads);
      continue;
    }
    const MaskRule rule(code, one, arrays);
    if (!rule.unknown().empty()) return {0, "its mask text is not counted: " + rule.unknown()};
    const AskedSequence sequence(sequences, i, mask, rule);
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t of_mask = head * (p.num_heads_q / heads);
      asked += sequence.asked(of_mask);
      const std::int64_t most = std::min(kMostAsked, kMostOperations / rule.operations());
      if (asked > most) {
        return {0, fmt::format("its mask text of {} operations would have to be asked of more than "
                               "{} pairs",
                               rule.operations(), most)};
      }
      pairs += static_cast<double>(sequence.visible(of_mask));
    }
  }
  pairs *= static_cast<double>(p.num_heads_q / heads) *
           (alike ? static_cast<double>(p.batch) : 1.0);
  return {flops_of_pairs(p, pairs), ""};
}

/// Each array of the tables, an empty one for a number.
std::vector<std::span<const std::byte>> arrays_of(const Problem& problem, const HostTensors& host) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  std::vector<std::span<const std::byte>> arrays(arguments.size());
  const std::span<const std::byte> all = host.code_arrays;
  std::size_t end = all.size();
  for (std::size_t i = std::min(arguments.size(), host.code_words.size()); i-- > 0;) {
    if (!arguments[i].is_array || host.code_words[i] > end) continue;
    const auto begin = static_cast<std::size_t>(host.code_words[i]);
    arrays[i] = all.subspan(begin, end - begin);
    end = begin;
  }
  return arrays;
}

std::size_t bytes_of_arrays(const Problem& problem) {
  std::size_t bytes = 0;
  for (const Operand& operand : operands(problem))
    if (operand.name == "code_arrays") bytes += operand.bytes();
  return bytes;
}

}  // namespace

Work work_of(const Problem& problem, const HostTensors& tables, Arrays arrays) {
  validate(problem);
  if (!has_fixed_lengths(problem) && tables.lengths_q.empty() && tables.lengths_kv.empty())
    return {0, "only the GPU knows how long its sequences are"};
  if (has_block_mask(problem) && tables.mask_row_begin.empty())
    return {0, "which blocks of its mask are present, a run says"};
  check_tables(problem, tables);
  const Sequences sequences = sequences_of(problem, tables);
  if (problem.mask.empty()) return {flops(sequences), ""};
  return work_of_text(sequences, arrays.empty() ? arrays_of(problem, tables)
                                                : std::vector(arrays.begin(), arrays.end()));
}

SeenKeys seen_keys(const Problem& problem) {
  const MaskTerms terms = mask_terms(problem);
  const bool blocks = has_block_mask(problem), text = !terms.code.empty();
  return {terms.bounds.left, terms.bounds.right, blocks || text, text && !blocks};
}

Work timed_work(const Problem& problem, std::uint64_t seed) {
  HostTensors tables;
  set_random_tables(problem, tables, seed);
  if (!mask_code(problem).empty() && bytes_of_arrays(problem) <= kMostArrayBytes)
    set_code_arguments(problem, tables, seed);
  return work_of(problem, tables);
}

}  // namespace attnforge
