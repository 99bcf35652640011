// tf32.cuh - fp32 numbers for the tensor cores' TF32 (10 bits of mantissa), rounded or as a sum of
// two (Ootomo and Yokota 2022, "Recovering single precision accuracy from Tensor Cores").
#pragma once

#include "base.cuh"

namespace attnforge {

/// An operand for which the tensor core's rounding has no bias. It ignores the 13 low bits, which
/// cuts off half a unit on average; the factor adds as much, 1/3 to 2/3 of a unit depending on the
/// mantissa. One instruction instead of the four of cvt.rna.tf32, exact for what TF32 can hold, and
/// infinities and NaN stay what they are.
ATTNFORGE_DEVICE float round_tf32(float x) {
  constexpr float kHalfUnit = 3.3845e-4f;  // ln(2) * 2^-11
  return x * (1.0f + kHalfUnit);
}

/// x = high + low: two operands of the tensor core, `high` exactly and `low` but for its last bit,
/// which the hardware ignores. `high` is nearest to x, half a unit added to the bits and the rest
/// cut off: `low` then has either sign and one bit less than were `high` cut off alone, which would
/// save an instruction and cost a third more error of a whole attention.
///
/// An infinity has a `low` of NaN. A NaN whose bits overflow, as those that GPUs make, has it too,
/// and a zero as `high`.
struct SplitTf32 {
  u32 high, low;

  ATTNFORGE_DEVICE explicit SplitTf32(float x) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
  }
};

}  // namespace attnforge
