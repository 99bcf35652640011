// error.h - the one exception type of the library. The C API turns it into a status code and a
// text.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "attnforge/cxx20.h"

namespace attnforge {

enum class ErrorCode {
  kInvalidProblem,   // the caller's problem text or sizes
  kInvalidArgument,  // any other argument: pointers, strides, options, command line
  kUnsupported,      // valid, but no kernel family serves it here
  kNotReady,         // needs a compile or a measurement that the caller forbade
  kCompile,          // NVRTC refused a source
  kNoDriver,         // libcuda, libnvrtc or a GPU is missing
  kCuda,             // a driver call failed
  kCache,            // the database cannot be used
  kIo,               // a file cannot be read or written
  kInternal,         // a bug in attnforge
};

/// Short fixed name, e.g. "invalid_problem"; used in JSON and logs.
ATTNFORGE_API std::string_view to_string(ErrorCode code);

/// What failed, with which values, and what to do about it.
/// what() is printable_lines() of the message, cut short below 8 KiB: values that it quotes may be
/// anybody's.
class ATTNFORGE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Throws Error(kInternal): a promise inside attnforge was broken. Active in every build.
[[noreturn]] ATTNFORGE_API void assertion_failed(const char* condition, const char* why,
                                                 const char* file, int line);

}  // namespace attnforge

#define ATTNFORGE_ASSERT(condition, why) \
  ((condition) ? void(0) : ::attnforge::assertion_failed(#condition, why, __FILE__, __LINE__))
