// fp8_sums.cuh - sums of two levels in fwd_wgmma_sm90a: tensor cores keep fewer than 32 bits of
// sums of e4m3, so what they added up of a tile goes to sums in fp32, of some columns at a time
// where registers are few. Compiled by g++ (search) and by NVRTC (kernel).
#pragma once

#include "fwd_wgmma_sm90a/config.h"

namespace attnforge {

struct Fp8Sums {
  const FwdWgmmaSm90aConfig& c;

  ATTNFORGE_CONSTEXPR bool two_levels() const { return c.dtype == kE4m3 && !c.fast_sums; }
  /// Of the main loop; the last of them is what ptxas needs beside numbers.
  ATTNFORGE_CONSTEXPR int registers(int columns_of_part) const {
    return c.head_dim_v / 2 + columns_of_part / 2 + c.block_n / 2 + c.block_n / 8 +
           (c.block_n > (c.warpgroups == 3 ? 96 : 128) ? 40
            : c.warpgroups == 3                        ? (two_levels() ? 32 : 28)
                                                       : 24) +
           (c.head_dim_v > 192 ? 4 : 0);
  }
  /// That are summed up at a time.
  ATTNFORGE_CONSTEXPR int columns() const {
    if (!two_levels()) return c.head_dim_v;
    for (int rounds = 1; rounds < 8; ++rounds) {
      const int columns = c.head_dim_v / rounds;
      if (c.head_dim_v % rounds == 0 && columns % 8 == 0 &&
          registers(columns) <= c.consumer_registers())
        return columns;
    }
    return 16;
  }
  /// Whether sums of a tile are those of so few keys that its terms, which are 8 bits wide, keep
  /// nearly all of them beside it: what is lost grows as keys do (bench/results/h200/fp8_sums.csv).
  ATTNFORGE_CONSTEXPR bool exact() const { return !two_levels() || c.block_n <= 128; }
};

}  // namespace attnforge
