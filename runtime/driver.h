// driver.h - the CUDA driver's entry points, opened at run time; never linked.
#pragma once

#include <cuda.h>

#include <string>

namespace attnforge {

/// One pointer a driver function that attnforge calls, under the function's own name: driver().cuLaunchKernelEx(...).
struct Driver;

/// Opens libcuda.so.1 once and initialises it. Thread-safe. Throws Error(kNoDriver) with what to do.
const Driver& driver();
/// The same without throwing: "" if usable, else why not.
const std::string& driver_problem();

/// Throws Error(kCuda) with the driver's name and text of `result` after `what` was attempted.
void check(CUresult result, const char* what);
void check(CUresult result, const std::string& what);

}  // namespace attnforge

#include "runtime/driver_table.h"
