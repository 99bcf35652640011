#include "tuner/tensors/problem_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "attnforge/error.h"
#include "tuner/tensors/made_up_tables.h"

namespace attnforge {
namespace {

// Counters of a check: two for all inputs, then these for each output.
enum Counter : int { kInputs, kInputGuards, kOfOutputs };
enum OfOutput : int { kPoisoned, kNan, kBits, kGuard, kPerOutput };

constexpr std::size_t kGuardRows = 128, kGuardLeast = 4096, kGuardMost = std::size_t{1} << 20;

std::size_t rounded_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

/// The tables that a problem has, and nothing else.
HostTensors tables_of(const Problem& problem, unsigned seed) {
  HostTensors host;
  set_made_up_tables(problem, host, seed);
  return host;
}

/// A table in device memory, before NaNs.
Buffer uploaded(const std::span<const std::byte> table) {
  std::vector<std::byte> guarded(table.begin(), table.end());
  guarded.insert(guarded.end(), kGuardLeast, std::byte{0xff});
  return Buffer::of(std::span<const std::byte>(guarded));
}

}  // namespace

ProblemTensors::Region ProblemTensors::allocate(std::size_t bytes, std::size_t row_bytes,
                                                std::size_t least_alignment) const {
  const std::size_t guard = rounded_up(std::clamp(kGuardRows * row_bytes, kGuardLeast, kGuardMost),
                                       256);
  const auto wanted = static_cast<std::size_t>(problem_.alignment_bytes);
  const std::size_t shift = wanted >= 16 ? 0 : std::max(wanted, least_alignment);
  Region region;
  region.begin = guard + shift;
  region.bytes = bytes;
  try {
    region.memory = Buffer(rounded_up(region.begin + bytes + guard, 256));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("no {} bytes of device memory for a tensor of \"{}\": {}",
                                          bytes + 2 * guard, to_string(problem_), error.what()));
  }
  return region;
}

ProblemTensors::ProblemTensors(const Problem& problem, unsigned seed,
                               const Instruments& instruments, CUstream stream)
    : problem_(problem), instruments_(instruments), tables_(tables_of(problem, seed)) {
  const std::vector<Operand> list = operands(problem);
  const auto outputs = std::ranges::count(list, Operand::Role::kOutput, &Operand::role);
  counters_ = Buffer((kOfOutputs + static_cast<std::size_t>(outputs) * kPerOutput) *
                     sizeof(std::uint64_t));
  remembered_ = Buffer(static_cast<std::size_t>(outputs) * kPerOutput * sizeof(std::uint64_t));
  std::vector<void*> addresses;
  for (const Operand& operand : list) {
    Placed& placed = placed_.emplace_back(Placed{.operand = operand, .region = {}});
    if (operand.role == Operand::Role::kTable) {
      placed.region.memory = uploaded(operand.content(tables_));
    } else {
      placed.region = allocate(operand.bytes(), operand.row_bytes(), operand.bytes_of_elements(1));
      placed.seed = (std::uint64_t{seed} << 8) + placed_.size();
    }
    addresses.push_back(placed.region.data());
  }
  tensors_ = bound_tensors(problem, list, addresses, tables_, words_);
  fill_inputs(stream);
  poison_outputs(stream);
}

std::uint64_t ProblemTensors::left_alone(const Operand& output) const {
  if (output.of_heads) return 0;
  const auto of_side = [](std::int64_t elements, std::int64_t rows, std::int64_t written) {
    return rows == 0 ? 0 : elements / rows * (rows - written);
  };
  const Tokens tokens = total_tokens(problem_);
  const std::int64_t queries = total_queries(sequences()), keys = total_keys(sequences());
  return static_cast<std::uint64_t>(
      of_side(output.elements - output.key_elements, tokens.q, queries) +
      of_side(output.key_elements, tokens.kv, keys));
}

void ProblemTensors::guard(const Region& region, std::uint16_t value, CUstream stream,
                           std::uint64_t* different) const {
  if (region.memory.size_bytes() == 0) return;
  instruments_.words(region.memory.data(), region.begin / 2, value, stream, different);
  instruments_.words(static_cast<char*>(region.data()) + region.bytes, region.words_after(), value,
                     stream, different);
}

void ProblemTensors::random(const Placed& placed, CUstream stream, std::uint64_t* different) const {
  instruments_.normal(placed.region.data(), static_cast<std::size_t>(placed.operand.elements),
                      placed.operand.dtype, random_range(problem_, placed.operand), placed.seed,
                      stream, different);
}

void ProblemTensors::fill_inputs(CUstream stream) const {
  for (const Placed& input : placed_) {
    if (!is(input, Operand::Role::kInput)) continue;
    guard(input.region, kPoison, stream);
    random(input, stream);
  }
}

void ProblemTensors::poison_outputs(CUstream stream) const {
  for (const Placed& output : placed_) {
    if (!is(output, Operand::Role::kOutput)) continue;
    guard(output.region, kCanary, stream);
    if (output.operand.added_to)
      random(output, stream);
    else
      instruments_.words(output.region.data(), output.region.bytes / 2, kPoison, stream);
  }
}

void ProblemTensors::remember(CUstream stream) {
  remembered_.fill8(0, stream);
  scan_outputs(static_cast<std::uint64_t*>(remembered_.data()), stream);
}

void ProblemTensors::scan_outputs(std::uint64_t* counts, CUstream stream) const {
  for (const Placed& placed : placed_) {
    if (!is(placed, Operand::Role::kOutput)) continue;
    // kPoisoned, kNan and kBits
    instruments_.scan(placed.region.data(), static_cast<std::size_t>(placed.operand.elements),
                      placed.operand.dtype, counts, stream);
    counts += kPerOutput;
  }
}

void ProblemTensors::check(CUstream stream) {
  counters_.fill8(0, stream);
  scan_outputs(counter(kOfOutputs), stream);
  int output = 0;
  for (const Placed& placed : placed_) {
    if (is(placed, Operand::Role::kInput)) {
      random(placed, stream, counter(kInputs));
      guard(placed.region, kPoison, stream, counter(kInputGuards));
    } else if (is(placed, Operand::Role::kOutput)) {
      const int first = kOfOutputs + output++ * kPerOutput;
      guard(placed.region, kCanary, stream, counter(first + kGuard));
    }
  }
}

std::string ProblemTensors::findings(CUstream stream) {
  const auto counts = counters_.to_host<std::uint64_t>();
  const auto remembered = remembered_.to_host<std::uint64_t>();
  const bool same_bits = problem_.op != Op::kBackward || problem_.deterministic;
  if (counts[kInputs] != 0 || counts[kInputGuards] != 0) fill_inputs(stream);

  std::string text;
  const auto say = [&](std::uint64_t count, const std::string& what) {
    if (count != 0) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", count, what);
  };
  int output = 0;
  for (const Placed& placed : placed_) {
    if (!is(placed, Operand::Role::kOutput)) continue;
    const std::uint64_t* of = counts.data() + kOfOutputs + output * kPerOutput;
    const std::uint64_t* first = remembered.data() + output++ * kPerOutput;
    const std::string name(placed.operand.name);
    const std::uint64_t alone = left_alone(placed.operand);
    if (placed.operand.added_to) {
      // Whether all was written is for the oracle to say.
    } else if (of[kPoisoned] > alone) {
      say(of[kPoisoned] - alone, "elements of " + name + " were not written");
    } else if (of[kPoisoned] < alone) {
      say(alone - of[kPoisoned],
          "elements of " + name + " after the end of a sequence were written");
    }
    say(of[kNan], "elements of " + name + " are NaN");
    if (same_bits && first[kBits] != of[kBits])
      say(1, "output, " + name + ", has other bits when it is computed again");
    say(of[kGuard], "16-bit words before or past " + name + " were written");
  }
  say(counts[kInputs], "elements of inputs were changed");
  say(counts[kInputGuards], "16-bit words before or past inputs were written");
  return text;
}

}  // namespace attnforge
