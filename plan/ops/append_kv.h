// append_kv.h - the kernels of append_kv() that a Device has loaded.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "generator/launch.h"
#include "runtime/loaded_launch.h"
#include "templates/ops/append_kv/host.h"

namespace attnforge {

struct AppendKernel {
  std::unique_ptr<LoadedKernels> kernels;  // one
  LaunchStep steps[2];  // append_step(): without and with blocks that are counted
};

struct AppendCodeHash {
  std::size_t operator()(const AppendCode& code) const noexcept {
    std::size_t bits = static_cast<std::size_t>(code.shape.dtype) * 4 +
                       static_cast<std::size_t>(code.shape.rope);
    for (const int field :
         {code.shape.head_dim, code.shape.head_dim_v, code.shape.rope_dim, code.alignment})
      bits = bits * 1021 + static_cast<std::size_t>(field);
    return std::hash<std::size_t>{}(bits);
  }
};

}  // namespace attnforge
