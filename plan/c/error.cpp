#include "plan/c/error.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace attnforge {
namespace {

// A fixed buffer: the text of "out of memory" must not need memory, and a thread that ends needs no
// destructor from a library that may have been unloaded.
constexpr std::size_t kErrorBytes = 8192;
thread_local char t_error[kErrorBytes];

}  // namespace

attnforge_status fail(attnforge_status status, std::string_view text) noexcept {
  constexpr std::string_view kCut = " [...]";
  const std::size_t room = kErrorBytes - 1;
  const std::size_t length = std::min(text.size(), room);
  std::memcpy(t_error, text.data(), length);
  t_error[length] = '\0';
  if (text.size() > room) std::memcpy(t_error + room - kCut.size(), kCut.data(), kCut.size());
  return status;
}

void clear_error() noexcept { t_error[0] = '\0'; }

attnforge_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidProblem:
    case ErrorCode::kInvalidArgument:
      return ATTNFORGE_ERR_INVALID;
    case ErrorCode::kUnsupported:
      return ATTNFORGE_ERR_UNSUPPORTED;
    case ErrorCode::kNotReady:
      return ATTNFORGE_ERR_NOT_READY;
    case ErrorCode::kCompile:
      return ATTNFORGE_ERR_COMPILE;
    case ErrorCode::kNoDriver:
      return ATTNFORGE_ERR_NO_DRIVER;
    case ErrorCode::kCuda:
      return ATTNFORGE_ERR_CUDA;
    case ErrorCode::kCache:
    case ErrorCode::kIo:
      return ATTNFORGE_ERR_IO;
    case ErrorCode::kInternal:
      return ATTNFORGE_ERR_INTERNAL;
  }
  return ATTNFORGE_ERR_INTERNAL;
}

}  // namespace attnforge

const char* attnforge_last_error(void) { return attnforge::t_error; }

const char* attnforge_status_name(attnforge_status status) {
  int value;  // C lets any int through
  static_assert(sizeof(value) == sizeof(status));
  std::memcpy(&value, &status, sizeof(value));
  constexpr const char* kNames[] = {"ok",        "invalid", "unsupported", "workspace",
                                    "compile",   "cuda",    "not_ready",   "no_memory",
                                    "no_driver", "io",      "internal"};
  static_assert(std::size(kNames) == ATTNFORGE_ERR_INTERNAL + 1);
  return value >= 0 && value < static_cast<int>(std::size(kNames)) ? kNames[value] : "unknown";
}
