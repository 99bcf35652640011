// lengths.cpp - the arrays of a run whose sequences are not all of one length.
#include <fmt/format.h>

#include "generator/operand_list.h"
#include "generator/run_parts.h"
#include "generator/tensor_check.h"

namespace attnforge {
namespace {

void add_lengths(OperandList& list) {
  const Problem& p = list.problem;
  list.add_words(operand<&HostTensors::lengths_q>("lengths_q", Operand::Role::kTable,
                                                  [](const Problem&, void* data, Tensors& t) {
                                                    t.lengths.q = static_cast<const int*>(data);
                                                  }),
                 p.batch + (p.lengths == Lengths::kPacked ? 1 : 0));
  list.add_words(operand<&HostTensors::lengths_kv>("lengths_kv", Operand::Role::kTable,
                                                   [](const Problem&, void* data, Tensors& t) {
                                                     t.lengths.kv = static_cast<const int*>(data);
                                                   }),
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
          fmt::format("lengths.tokens_{}={} must be from 0 to {}, the rows that this plan is for; "
                      "make one for a problem with more tokens",
                      side.name, side.tokens, side.most));
    }
  }
}

}  // namespace

extern const RunPart lengths_in_run;
constinit const RunPart lengths_in_run{
    .in = [](const Problem& p) { return p.lengths != Lengths::kFixed; },
    .add_inputs = add_lengths,
    .good = lengths_good,
    .explain = explain_lengths};

}  // namespace attnforge
