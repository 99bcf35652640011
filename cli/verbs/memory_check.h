// memory_check.h - whether the tensors of a problem fit, before they are made.
#pragma once

#include <string>

#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/problem.h"

namespace attnforge::cli {

/// Bytes of host memory that this process may still take: what the system has available, less where
/// its control group is limited. 0: unknown.
double available_host_bytes();

/// Throws Error(kUnsupported) if what is named takes more than `available` bytes of host memory.
void require_host_bytes(const char* what, double bytes, double available = available_host_bytes());

/// What to say of a std::bad_alloc.
std::string no_host_memory();

/// In a handler of exceptions: the text and the code of what it caught. Memory that is not there
/// has `advice`.
void note_failure(std::string& error, ErrorCode& code, const char* advice);

/// Throws Error(kUnsupported) with what is needed and what there is if the tensors of `problem` are
/// larger than `available` bytes of host memory (0: unknown).
void require_host_memory(const Problem& problem, double available = available_host_bytes());

/// Throws Error(kUnsupported) if tensors and what the reference takes to compute all rows do not
/// fit.
void require_reference_memory(const Problem& problem, double available = available_host_bytes());

/// Throws Error(kUnsupported) if the tensors do not fit the GPU's memory.
void require_gpu_memory(const Problem& problem, const DeviceFacts& device);

}  // namespace attnforge::cli
