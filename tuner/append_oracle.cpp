#include "tuner/append_oracle.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "generator/tensors/operands.h"
#include "reference/compare/comparer.h"
#include "reference/half.h"
#include "reference/parts/append.h"
#include "runtime/driver.h"
#include "tuner/oracle_list.h"

namespace attnforge {
namespace {

/// Where the operand of that name lies in a run.
const void* address_of(std::string_view name, const Tensors& t) {
  const std::pair<std::string_view, const void*> places[] = {
      {"q", t.q.data},
      {"k", t.k.data},
      {"v", t.v.data},
      {"o", t.o.data},
      {"k_cache", t.cache.k.data},
      {"v_cache", t.cache.v.data},
      {"k_scale", t.k_scale.data},
      {"v_scale", t.v_scale.data},
      {"lengths_q", t.lengths.q},
      {"lengths_kv", t.lengths.kv},
      {"lengths_after", t.cache.lengths_after},
      {"page_table", t.pages.table},
      {"rope_cos", t.rope.cos},
      {"rope_sin", t.rope.sin}};
  for (const auto& [known, address] : places) {
    if (known == name) return address;
  }
  return nullptr;
}

class AppendOracle : public Oracle {
 public:
  AppendOracle(const Problem& problem, const Tensors& tensors, CUstream stream)
      : problem_(problem), list_(operands(problem)) {
    copy(tensors, expected_, stream);
    std::vector<void*> addresses;
    for (const Operand& operand : list_) addresses.push_back(operand.in_host(expected_).data());
    std::vector<std::uint64_t> words;
    Tensors on_host = bound_tensors(problem, list_, addresses, expected_, words);
    on_host.rope.offset = tensors.rope.offset;
    reference_append(problem, on_host);
  }

  Verdict compare(const Tensors& tensors, CUstream stream) override {
    HostTensors got;
    copy(tensors, got, stream);
    Verdict verdict;
    for (const Comparison& each : compare_append(problem_, got, expected_)) {
      verdict.max_error = std::max(verdict.max_error, each.max_error);
      if (!each.passed() && verdict.mismatch.empty()) verdict.mismatch = to_string(each);
    }
    return verdict;
  }

 private:
  void copy(const Tensors& from, HostTensors& to, CUstream stream) const {
    for (const Operand& operand : list_) {
      operand.resize(to, operand.bytes());
      const auto address = reinterpret_cast<CUdeviceptr>(address_of(operand.name, from));
      if (operand.bytes() == 0) continue;
      check(
          driver().cuMemcpyDtoHAsync(operand.in_host(to).data(), address, operand.bytes(), stream),
          "copy the tensors of an append");
    }
    wait_for_copies(stream);
  }

  Problem problem_;
  std::vector<Operand> list_;
  HostTensors expected_;
};

/// Where a rotated element may be rounded the other way: what is quantised after that is the number
/// beside it then, of a scale that is as much off.
double allowed_rotated(const Problem& problem, const Operand& operand, double wanted) {
  const double of_row = 2 * unit_roundoff(problem.dtype_q);
  if (is_low_bit(operand.scales)) return of_row * std::abs(wanted);
  if (!is_low_bit(operand.dtype)) return of_row * (1 + std::abs(wanted));
  const ElementFormat& format = format_of(operand.dtype);
  const double beside = format.floating ? 2 * format.roundoff * std::abs(wanted) : 0.0;
  return format.step + beside + 2 * of_row * std::abs(wanted);
}

}  // namespace

std::vector<Comparison> compare_append(const Problem& problem, const HostTensors& got,
                                       const HostTensors& expected) {
  std::vector<Comparison> comparisons;
  for (const Operand& operand : operands(problem)) {
    if (operand.role != Operand::Role::kOutput) continue;
    const bool of_q = operand.name == "o", counts = operand.name == "lengths_after";
    const bool of_v = operand.name.starts_with('v'), scales = is_low_bit(operand.scales);
    const bool rotated = problem.rope != Rope::kNone && !of_v && !counts;
    const int head_dim = of_v ? problem.head_dim_v : problem.head_dim;
    const int columns = counts ? 1 : scales ? scales_of_row(problem, head_dim) : head_dim;
    const std::int64_t heads = counts ? 1 : of_q ? problem.num_heads_q : problem.num_heads_kv;
    const std::int64_t rows = of_q && problem.lengths == Lengths::kFixed
                                  ? problem.seqlen_q
                                  : std::max<std::int64_t>(1,
                                                           operand.row_elements / columns / heads);
    const auto element = [&](const HostTensors& host, std::int64_t i) -> double {
      const void* const data = operand.content(host).data();
      return counts ? static_cast<const int*>(data)[i] : load_element(operand.dtype, data, i);
    };
    Comparer comparer(std::string(operand.name), operand.dtype);
    for (std::int64_t i = 0; i < operand.elements; ++i) {
      const std::int64_t row = i / columns / heads;
      const double wanted = element(expected, i);
      const double allowed = rotated ? allowed_rotated(problem, operand, wanted) : 0;
      comparer.add({row / rows, i / columns % heads, row % rows}, static_cast<int>(i % columns),
                   element(got, i), wanted, allowed);
    }
    comparisons.push_back(comparer.take());
  }
  return comparisons;
}

std::unique_ptr<Oracle> make_append_oracle(const Problem& problem, const Tensors& tensors,
                                           CUstream stream) {
  return std::make_unique<AppendOracle>(problem, tensors, stream);
}

}  // namespace attnforge
