#include "tuner/problem_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "attnforge/error.h"
#include "reference/rope.h"

namespace attnforge {
namespace {

// Counters of a check.
enum Counter : int {
  kOPoison,
  kONan,
  kLsePoison,
  kLseNan,
  kOGuard,
  kLseGuard,
  kInputs,
  kInputGuards,
  kCounterCount
};
static_assert(kCounterCount <= ProblemTensors::kCounters);

constexpr std::size_t kGuardRows = 128, kGuardLeast = 4096, kGuardMost = std::size_t{1} << 20;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

std::size_t product(std::initializer_list<std::int64_t> factors) {
  std::size_t result = 1;
  for (std::int64_t factor : factors) result *= static_cast<std::size_t>(factor);
  return result;
}

}  // namespace

ProblemTensors::Region ProblemTensors::allocate(std::size_t bytes, std::size_t row_bytes,
                                                std::size_t least_alignment) const {
  const std::size_t guard = round_up(std::clamp(kGuardRows * row_bytes, kGuardLeast, kGuardMost),
                                     256);
  const auto wanted = static_cast<std::size_t>(problem_.alignment_bytes);
  const std::size_t shift = wanted >= 16 ? 0 : std::max(wanted, least_alignment);
  Region region;
  region.begin = guard + shift;
  region.bytes = bytes;
  try {
    region.memory = Buffer(round_up(region.begin + bytes + guard, 256));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("no {} bytes of device memory for a tensor of \"{}\": {}",
                                          bytes + 2 * guard, to_string(problem_), error.what()));
  }
  return region;
}

ProblemTensors::ProblemTensors(const Problem& problem, unsigned seed,
                               const Instruments& instruments, CUstream stream)
    : problem_(problem),
      instruments_(instruments),
      tensors_(contiguous_tensors(problem)),
      counters_(kCounters * sizeof(std::uint64_t)) {
  const Problem& p = problem_;
  const auto input = [&](std::size_t elements, std::int64_t row_elements, DType dtype) {
    const auto size = static_cast<std::size_t>(size_bytes(dtype));
    const std::uint64_t stream_of_numbers = (std::uint64_t{seed} << 8) + inputs_.size() + 1;
    inputs_.push_back(
        {allocate(elements * size, static_cast<std::size_t>(row_elements) * size, size), dtype,
         stream_of_numbers});
    return inputs_.back().region.data();
  };
  if (p.layout == Layout::kPackedQkv) {
    const std::int64_t heads = p.num_heads_q + 2 * p.num_heads_kv;
    tensors_.q.data = input(product({p.batch, p.seqlen_q, heads, p.head_dim}), heads * p.head_dim,
                            p.dtype_q);
    char* const base = static_cast<char*>(tensors_.q.data);
    tensors_.k.data = base + p.num_heads_q * p.head_dim * size_bytes(p.dtype_q);
    tensors_.v.data = base + (p.num_heads_q + p.num_heads_kv) * p.head_dim * size_bytes(p.dtype_q);
  } else {
    tensors_.q.data = input(product({p.batch, p.seqlen_q, p.num_heads_q, p.head_dim}),
                            tensors_.q.stride_row, p.dtype_q);
    tensors_.k.data = input(product({p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim}),
                            tensors_.k.stride_row, p.dtype_k);
    tensors_.v.data = input(product({p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v}),
                            tensors_.v.stride_row, p.dtype_v);
  }
  const auto o_size = static_cast<std::size_t>(size_bytes(p.dtype_o));
  o_ = allocate(product({p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v}) * o_size,
                static_cast<std::size_t>(tensors_.o.stride_row) * o_size, o_size);
  tensors_.o.data = o_.data();
  if (p.lse) {
    lse_ = allocate(product({p.batch, p.num_heads_q, p.seqlen_q}) * sizeof(float), sizeof(float),
                    sizeof(float));
    tensors_.lse.data = static_cast<float*>(lse_.data());
  }
  if (p.rope != Rope::kNone) set_rope_tables();
  fill_inputs(stream);
}

void ProblemTensors::set_rope_tables() {
  tensors_.rope.offset = least_rope_offset(problem_);
  tensors_.rope.rows = tensors_.rope.offset + problem_.seqlen_kv;
  HostRopeTables tables = rope_tables(effective_rope_dim(problem_), tensors_.rope.rows);
  const auto uploaded = [](std::vector<float>& table) {
    table.insert(table.end(), kGuardLeast / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    return Buffer::of(std::span<const float>(table));
  };
  rope_cos_ = uploaded(tables.cos);
  rope_sin_ = uploaded(tables.sin);
  tensors_.rope.cos = static_cast<const float*>(rope_cos_.data());
  tensors_.rope.sin = static_cast<const float*>(rope_sin_.data());
}

void ProblemTensors::guard(const Region& region, std::uint16_t value, CUstream stream) const {
  if (region.memory.size_bytes() == 0) return;
  instruments_.set_words(region.memory.data(), region.begin / 2, value, stream);
  instruments_.set_words(static_cast<char*>(region.data()) + region.bytes, region.words_after(),
                         value, stream);
}

void ProblemTensors::count_guard(const Region& region, std::uint16_t value, int index,
                                 CUstream stream) {
  if (region.memory.size_bytes() == 0) return;
  instruments_.count_other_words(region.memory.data(), region.begin / 2, value, counter(index),
                                 stream);
  instruments_.count_other_words(static_cast<char*>(region.data()) + region.bytes,
                                 region.words_after(), value, counter(index), stream);
}

void ProblemTensors::fill_inputs(CUstream stream) const {
  for (const Input& input : inputs_) {
    guard(input.region, kPoison, stream);
    instruments_.set_normal(input.region.data(), input.region.bytes / size_bytes(input.dtype),
                            input.dtype, input.seed, stream);
  }
}

void ProblemTensors::poison_outputs(CUstream stream) const {
  for (const Region* region : {&o_, &lse_}) {
    guard(*region, kCanary, stream);
    instruments_.set_words(region->data(), region->bytes / 2, kPoison, stream);
  }
}

void ProblemTensors::check(CUstream stream) {
  counters_.fill8(0, stream);
  instruments_.scan(o_.data(), o_.bytes / size_bytes(problem_.dtype_o), problem_.dtype_o,
                    counter(kOPoison), stream);
  instruments_.scan(lse_.data(), lse_.bytes / sizeof(float), DType::kFp32, counter(kLsePoison),
                    stream);
  count_guard(o_, kCanary, kOGuard, stream);
  count_guard(lse_, kCanary, kLseGuard, stream);
  for (const Input& input : inputs_) {
    instruments_.count_not_normal(input.region.data(), input.region.bytes / size_bytes(input.dtype),
                                  input.dtype, input.seed, counter(kInputs), stream);
    count_guard(input.region, kPoison, kInputGuards, stream);
  }
}

std::string ProblemTensors::findings(CUstream stream) {
  std::array<std::uint64_t, kCounters> counts{};
  counters_.copy_to_host(counts.data(), sizeof(counts));
  if (counts[kInputs] != 0 || counts[kInputGuards] != 0) fill_inputs(stream);

  constexpr std::array<const char*, kCounterCount> kTexts = {
      "{} elements of o were not written",
      "{} elements of o are NaN",
      "{} elements of lse were not written",
      "{} elements of lse are NaN",
      "{} 16-bit words before or past o were written",
      "{} 16-bit words before or past lse were written",
      "{} elements of q, k or v were changed",
      "{} 16-bit words before or past q, k or v were written",
  };
  std::string text;
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    if (counts[i] == 0) continue;
    text += (text.empty() ? "" : "; ") + fmt::format(fmt::runtime(kTexts[i]), counts[i]);
  }
  return text;
}

}  // namespace attnforge
