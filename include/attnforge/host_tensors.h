// host_tensors.h - the tensors of a problem in host memory, contiguous in the problem's layout: for
// programs that bring their own data, and for checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge {

/// Contiguous tensors, laid out as contiguous_tensors(problem) says, in the problem's dtypes.
struct HostTensors {
  std::vector<std::byte> q, k, v;  // kPackedQkv: q holds all three, k and v are empty
  std::vector<std::byte>
      o;  // [batch, seqlen_q, num_heads_q, head_dim_v], or by heads first for kBhsd
  std::vector<float> lse{};  // [batch, num_heads_q, seqlen_q] if problem.lse, else empty
};

/// All vectors in their right sizes; inputs zero, outputs NaN, so that an element that nobody wrote
/// shows in a check.
HostTensors allocate_host_tensors(const Problem& problem);

/// The same with random q, k, v of mean 0 and variance 1 (sums of four uniform numbers: nearly
/// normal, at most 3.5). They depend on the seed and the problem only: the same numbers on every
/// machine.
HostTensors random_host_tensors(const Problem& problem, std::uint64_t seed);

/// `count` values from or to fp32. Narrowing rounds to nearest even and overflows to infinity; NaN
/// stays NaN.
void values_to_float(DType from, const void* values, std::size_t count, float* out);
void values_from_float(DType to, const float* values, std::size_t count, void* out);

}  // namespace attnforge
