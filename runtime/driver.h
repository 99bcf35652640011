// driver.h - the CUDA driver's entry points, opened at run time; never linked.
#pragma once

#include <cuda.h>
#include <fmt/core.h>

#include <string>
#include <utility>

#include "runtime/driver_table.h"

namespace attnforge {

/// Opens libcuda.so.1 once and initialises it. Call a function by its own name:
/// driver().cuLaunchKernelEx(...). Thread-safe; costs a branch after the first call. Throws
/// Error(kNoDriver) with what to do, Error(kCuda) if driver_of_a_parent().
const Driver& driver();
/// Whether this process was forked from one that had opened the driver: CUDA does not survive that,
/// and what the parent made with it is the parent's to give back.
bool driver_of_a_parent();
/// "" if the driver is usable, else why not. Does not throw.
const std::string& driver_problem();
/// The version that cuDriverGetVersion gives, e.g. 13000; 0 without a usable driver.
int driver_version();

/// Throws Error(kCuda): `what` was attempted and the driver answered `result`; adds its name, its
/// text and what to do.
[[noreturn]] void throw_cuda_error(CUresult result, const std::string& what);

/// Throws as throw_cuda_error() unless `result` is CUDA_SUCCESS.
template <class... Values>
void check(CUresult result, fmt::format_string<Values...> what, Values&&... values) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_cuda_error(result, fmt::format(what, std::forward<Values>(values)...));
}

}  // namespace attnforge
