#include "tuner/tensors/asked_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>

#include "generator/tensors/operands.h"
#include "tuner/tensors/made_up_tables.h"

namespace attnforge {

bool is_smaller(const Problem& asked, const Problem& bucket) {
  const auto sizes = [](const Problem& p) {
    return std::tuple(p.batch, p.seqlen_q, p.seqlen_kv, p.tokens_q, p.tokens_kv);
  };
  if (asked.batch_invariant || sizes(asked) == sizes(bucket)) return false;
  constexpr std::size_t kMostTableBytes = 64 << 20;  // made a second time, and not counted
  std::size_t tables = 0;
  for (const Operand& each : operands(asked))
    if (each.role == Operand::Role::kTable) tables += each.bytes();
  if (tables > kMostTableBytes) return false;
  const auto no_larger = [](const Operand& small, const Operand& large) {
    return small.name == large.name && small.bytes() <= large.bytes();
  };
  return std::ranges::equal(operands(asked), operands(bucket), no_larger);
}

AskedTensors::AskedTensors(const Problem& asked, const ProblemTensors& bucket, unsigned seed) {
  set_made_up_tables(asked, host_, seed);
  const std::vector<Operand> list = operands(asked);
  std::vector<void*> addresses;
  for (std::size_t place = 0; place < list.size(); ++place) {
    if (list[place].role == Operand::Role::kTable) {
      tables_.push_back(Buffer::of(list[place].content(host_)));
      addresses.push_back(tables_.back().data());
    } else {
      addresses.push_back(bucket.address(place));
    }
  }
  tensors_ = bound_tensors(asked, list, addresses, host_, words_);
}

}  // namespace attnforge
