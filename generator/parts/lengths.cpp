// lengths.cpp - the arrays of a run whose sequences are not all of one length.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/tensor_check.h"

namespace attnforge {
namespace {

void add_lengths(OperandList& list) {
  const Problem& p = list.problem;
  constexpr auto kLengths = &Tensors::lengths;
  list.add_words(operand<&HostTensors::lengths_q, kLengths, &LengthArrays::q>(
                     "lengths_q", Operand::Role::kTable),
                 p.batch + (p.lengths == Lengths::kPacked ? 1 : 0));
  list.add_words(operand<&HostTensors::lengths_kv, kLengths, &LengthArrays::kv>(
                     "lengths_kv", Operand::Role::kTable),
                 p.batch + (has_packed_keys(p) ? 1 : 0));
}

bool lengths_good(const Problem& p, std::uint64_t, const Tensors& t) {
  const LengthArrays& lengths = t.lengths;
  const bool present = (p.lengths != Lengths::kPacked || lengths.q != nullptr) &&
                       (!has_packed_keys(p) || lengths.kv != nullptr);
  const Tokens most = total_tokens(p);
  return present && (address_bits(lengths.q) | address_bits(lengths.kv)) % alignof(int) == 0 &&
         lengths.tokens_q >= 0 && lengths.tokens_q <= most.q && lengths.tokens_kv >= 0 &&
         lengths.tokens_kv <= most.kv;
}

void explain_lengths(const Problem& problem, const Tensors& t) {
  const Tokens most = total_tokens(problem);
  const struct {
    std::string_view name;
    const int* array;
    bool packed;
    std::int64_t tokens, most;
  } sides[] = {{"q", t.lengths.q, problem.lengths == Lengths::kPacked, t.lengths.tokens_q, most.q},
               {"kv", t.lengths.kv, has_packed_keys(problem), t.lengths.tokens_kv, most.kv}};
  for (const auto& side : sides) {
    const std::string name = fmt::format("lengths.{}", side.name);
    if (side.packed) {
      check_address(
          name, side.array, alignof(int),
          fmt::format("but the problem says lengths=packed; give it the {} beginnings and "
                      "ends of the sequences, as 32-bit integers in device memory",
                      problem.batch + 1));
    }
    check_alignment(name, side.array, alignof(int));
    if (side.tokens < 0 || side.tokens > side.most) {
      refuse_tensors(
          "lengths.tokens_{}={} must be from 0 to {}, the rows that this plan is for; make one for "
          "a problem with more tokens",
          side.name, side.tokens, side.most);
    }
  }
}

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 30;  // a row's number is an int in kernels

void validate_lengths(const Problem& p) {
  if (p.lengths == Lengths::kFixed && (p.tokens_q != 0 || p.tokens_kv != 0)) {
    reject_problem("tokens_q={} tokens_kv={} need lengths=packed", p.tokens_q, p.tokens_kv);
  }
  if (p.lengths == Lengths::kUsed && (p.tokens_q != 0 || p.tokens_kv != 0)) {
    reject_problem(
        "tokens_q={} tokens_kv={} need lengths=packed: those of lengths=used are batch * seqlen",
        p.tokens_q, p.tokens_kv);
  }
  if (p.lengths != Lengths::kPacked || !is_attention(p)) return;
  if (p.layout == Layout::kPackedQkv && p.tokens_q != p.tokens_kv) {
    reject_problem("layout=packed_qkv needs tokens_q={} and tokens_kv={} to be equal", p.tokens_q,
                   p.tokens_kv);
  }
  if (!has_packed_keys(p) && p.tokens_kv != 0) {
    reject_problem(
        "tokens_kv={} does not go with keys in pages, which have their own; say tokens_q= alone, "
        "and tokens_kv=0",
        p.tokens_kv);
  }
  const auto check = [&](char side, std::int64_t tokens, std::int64_t seqlen) {
    const std::int64_t most = p.batch * seqlen;
    if (tokens > most) {
      reject_problem(
          "tokens_{0}{1}={2} is more than batch={3} sequences of seqlen_{0}{1}={4} can have", side,
          side == 'k' ? "v" : "", tokens, p.batch, seqlen);
    }
  };
  check('q', p.tokens_q, p.seqlen_q);
  check('k', p.tokens_kv, p.seqlen_kv);
}

std::string too_many_tokens(const Problem& p) {
  const Tokens tokens = total_tokens(p);
  if (p.lengths != Lengths::kPacked ||
      std::max(tokens.q, has_packed_keys(p) ? tokens.kv : 0) <= kMaxTokens)
    return "";
  return fmt::format(
      "batch={} seqlen_q={} seqlen_kv={} may be more than 2^30 rows; say how many there are at "
      "most "
      "with tokens=",
      p.batch, p.seqlen_q, p.seqlen_kv);
}

/// Tokens of tensors that fit `most`, as full as tensors that fit `room` are with `tokens`, up to a
/// power of two; 0: full.
std::int64_t round_tokens(std::int64_t tokens, std::int64_t room, std::int64_t most) {
  if (tokens == 0 || room == 0) return 0;
  const int halvings = std::bit_width(static_cast<std::uint64_t>(room / tokens)) - 1;
  return halvings <= 0 ? 0 : std::max<std::int64_t>(1, most >> halvings);
}

void round_lengths(const Problem& exact, Problem& bucket) {
  bucket.tokens_q = round_tokens(exact.tokens_q, exact.batch * exact.seqlen_q,
                                 bucket.batch * bucket.seqlen_q);
  bucket.tokens_kv = round_tokens(exact.tokens_kv, exact.batch * exact.seqlen_kv,
                                  bucket.batch * bucket.seqlen_kv);
  if (exact.batch_invariant) bucket.tokens_q = bucket.tokens_kv = 0;  // full
}

/// Sequences of a usual length.
void make_typical_lengths(const Problem& problem, Problem& typical) {
  typical.lengths = Lengths::kFixed;
  typical.tokens_q = typical.tokens_kv = 0;
  if (problem.batch == 0 || problem.lengths == Lengths::kUsed) return;
  // Twice the mean: most of the work is in the long ones.
  const Tokens tokens = total_tokens(problem);
  const auto twice_mean = [&](std::int64_t total, std::int64_t most) {
    return std::min(most, (2 * total + problem.batch - 1) / problem.batch);
  };
  typical.seqlen_q = twice_mean(tokens.q, problem.seqlen_q);
  typical.seqlen_kv = twice_mean(tokens.kv, problem.seqlen_kv);
  if (typical.layout == Layout::kPackedQkv) typical.layout = Layout::kBshd;
  typical.batch = std::max<std::int64_t>(
      1, (tokens.q + typical.seqlen_q / 2) / std::max<std::int64_t>(1, typical.seqlen_q));
}

}  // namespace

Tokens total_tokens(const Problem& p) {
  return {.q = p.tokens_q != 0 ? p.tokens_q : p.batch * p.seqlen_q,
          .kv = p.tokens_kv != 0 ? p.tokens_kv : p.batch * p.seqlen_kv};
}

extern const ProblemPart lengths_of_problem;
constinit const ProblemPart lengths_of_problem{
    .in = [](const Problem& p) { return p.lengths != Lengths::kFixed && is_attention(p); },
    .validate = validate_lengths,
    .too_large = too_many_tokens,
    .round = round_lengths,
    .make_typical = make_typical_lengths,
    .add_inputs = add_lengths,
    .good = lengths_good,
    .explain = explain_lengths};

}  // namespace attnforge
