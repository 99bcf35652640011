// handle.h - what the handles of the C API are. Each begins with a word of its kind, so that a
// handle of another kind, or one that was destroyed, is refused in words instead of followed.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "attnforge/c.h"
#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

struct attnforge_context {
  static constexpr std::uint64_t kKind = 0x636f6e7465787421;
  static constexpr std::string_view kName = "attnforge_context";
  std::uint64_t kind = kKind;
  attnforge::DeviceFacts facts{};
  std::optional<attnforge::Device> device{};  // none for an arch that is only looked at
  std::string cache_path{};
  std::atomic<bool> no_jit = false;
};

struct attnforge_problem {
  static constexpr std::uint64_t kKind = 0x70726f626c656d21;
  static constexpr std::string_view kName = "attnforge_problem";
  std::uint64_t kind = kKind;
  attnforge::Problem problem{};  // valid
};

struct attnforge_plan {
  static constexpr std::uint64_t kKind = 0x706c616e706c6121;
  static constexpr std::string_view kName = "attnforge_plan";
  std::uint64_t kind = kKind;
  attnforge::Plan plan;
  attnforge::DeviceFacts facts{};
  std::string problem{}, config{}, provenance{};
};

namespace attnforge {

/// *pointer. Throws Error(kInvalidArgument) with `name`, which is that of the argument.
template <class Type>
Type& required(Type* pointer, std::string_view name) {
  if (pointer == nullptr) throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is NULL", name));
  return *pointer;
}

/// For attnforge_free_string().
inline char* copied(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

template <class Handle>
bool is_handle(const Handle* given) noexcept {
  return given != nullptr && given->kind == Handle::kKind;
}

/// Throws Error(kInvalidArgument) with `name`, which is that of the argument.
template <class Handle>
Handle& checked_handle(Handle* given, std::string_view name) {
  if (is_handle(given)) [[likely]]
    return *given;
  throw Error(ErrorCode::kInvalidArgument,
              given == nullptr
                  ? fmt::format("{} is NULL", name)
                  : fmt::format("{} is not an {}: it is a handle of another kind, or was destroyed",
                                name, Handle::kName));
}

/// Throws Error(kInvalidArgument), Error(kNoDriver) for a context without a GPU.
inline Device& device_of(attnforge_context* context) {
  attnforge_context& given = checked_handle(context, "context");
  if (given.device) return *given.device;
  throw Error(
      ErrorCode::kNoDriver,
      fmt::format(
          "this context was created for arch {} without a GPU; leave desc.arch NULL to open one",
          given.facts.arch.name));
}

/// What is not a handle of this kind stays as it is.
template <class Handle>
void destroy(Handle* given) noexcept {
  if (!is_handle(given)) return;
  // Volatile, or the compiler leaves out what is not read while the object lives.
  *const_cast<volatile std::uint64_t*>(&given->kind) = 0;
  delete given;
}

}  // namespace attnforge
