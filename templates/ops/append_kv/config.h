// config.h - what is searched of append_kv. Compiled by g++ (search, launch) and by NVRTC (kernel).
#pragma once

#include "ops/append_kv/params.h"
#include "shape.h"

namespace attnforge {

struct AppendRowsConfig : Shape {
  int blocks_per_sm;  // that registers are to leave room for

  ATTNFORGE_CONSTEXPR static int num_threads() { return AppendShape::kMostThreads; }
  ATTNFORGE_CONSTEXPR AppendShape append_shape() const {
    return {dtype, head_dim, head_dim_v, rope, rope_dim, dtype_k, dtype_v, kv_scale, kv_zero};
  }
};

}  // namespace attnforge
