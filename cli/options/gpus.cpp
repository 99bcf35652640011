#include "cli/options/gpus.h"

#include <fmt/format.h>

#include <charconv>

#include "attnforge/device_memory.h"
#include "attnforge/error.h"
#include "attnforge/printable.h"
#include "cli/terminal/messages.h"

namespace attnforge::cli {

std::vector<int> gpu_ordinals(const std::string& text) {
  if (text == "all") {
    std::vector<int> ordinals;
    for (const DeviceFacts& device : enumerate_devices()) ordinals.push_back(device.ordinal);
    if (ordinals.empty()) ordinals.push_back(0);
    return ordinals;
  }
  int ordinal = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
  if (error != std::errc() || end != text.data() + text.size() || ordinal < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "--gpu must be the number of a GPU (see attnforge list devices) or all, not \"{}\"",
            text));
  }
  return {ordinal};
}

bool gpu_works(Device& device) {
  try {
    DeviceBuffer(device, 256).fill(0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string describe(const DeviceFacts& device) {
  if (device.ordinal >= 0) return fmt::format("GPU {}, {}", device.ordinal, printable(device.name));
  return fmt::format("{} (sm_{}, not present)", device.name, device.arch.name);
}

std::string gpu_of_class(const std::string& device_class) {
  return device_class.substr(0, device_class.find(" sm"));
}

std::string log_line(LogLevel level, std::string_view message) {
  const char* word = level == LogLevel::kError     ? "error: "
                     : level == LogLevel::kWarning ? "warning: "
                     : level == LogLevel::kDebug   ? "debug: "
                                                   : "";
  return fmt::format("attnforge: {}{}", word, message);
}

LogFunction log_to_stderr() {
  return [](LogLevel level, std::string_view message) { say(log_line(level, message)); };
}

}  // namespace attnforge::cli
