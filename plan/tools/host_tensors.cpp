#include "attnforge/host_tensors.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "generator/tensors/operands.h"
#include "reference/half.h"
#include "reference/parallel.h"
#include "reference/split_mix.h"
#include "tuner/tensors/made_up_tables.h"

namespace attnforge {
namespace {

/// Four 16-bit uniform numbers summed and scaled: exact integers up to the one product, hence equal
/// on all machines.
float nearly_normal(std::uint64_t bits) {
  const int sum = static_cast<int>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                                   (bits >> 48));
  constexpr float kMean = 2 * 65535.0f;
  constexpr float kScale = 1.0f / 37837.2f;  // of four: sqrt(4 * (65536^2 - 1) / 12)
  return (static_cast<float>(sum) - kMean) * kScale;
}

void fill_random(DType dtype, const RandomRange& range, std::span<std::byte> values,
                 std::uint64_t seed) {
  constexpr std::int64_t kPiece = 1 << 16;
  const auto count = elements_in(dtype, values.size());
  parallel_for((count + kPiece - 1) / kPiece, 0, [&](std::int64_t piece) {
    const std::int64_t first = piece * kPiece;
    std::vector<float> numbers(static_cast<std::size_t>(std::min(count - first, kPiece)));
    std::uint64_t counter = mixed(seed) + static_cast<std::uint64_t>(first) * kSplitMixStep;
    for (float& x : numbers) {
      x = range.mean + range.deviation * nearly_normal(mixed(counter));
      counter += kSplitMixStep;
    }
    format_of(dtype).store(numbers.data(), std::ssize(numbers), values.data(), first);
  });
}

}  // namespace

namespace {

/// allocate_host_tensors() with the sequences of a seed.
HostTensors allocated(const Problem& problem, std::uint64_t seed) {
  validate(problem);
  HostTensors host;
  for (const Operand& operand : operands(problem)) {
    operand.resize(host, operand.bytes());
    // All bits set is a NaN in each dtype.
    if (operand.role == Operand::Role::kOutput && !operand.added_to)
      std::ranges::fill(operand.in_host(host), std::byte{0xff});
  }
  set_made_up_tables(problem, host, seed);
  return host;
}

}  // namespace

HostTensors allocate_host_tensors(const Problem& problem) { return allocated(problem, 0); }

HostTensors random_host_tensors(const Problem& problem, std::uint64_t seed) {
  HostTensors host = allocated(problem, seed);
  std::uint64_t number = 3 * seed;
  for (const Operand& operand : operands(problem)) {
    // What dargs are added to begins at zeros, so that a check knows it.
    if (operand.role == Operand::Role::kInput || (operand.added_to && problem.accumulate))
      fill_random(operand.dtype, random_range(problem, operand), operand.in_host(host), number++);
  }
  return host;
}

void values_to_float(DType from, const void* values, std::size_t count, float* out) {
  format_of(from).load(values, 0, static_cast<std::int64_t>(count), out);
}

void values_from_float(DType to, const float* values, std::size_t count, void* out) {
  format_of(to).store(values, static_cast<std::int64_t>(count), out, 0);
}

}  // namespace attnforge
