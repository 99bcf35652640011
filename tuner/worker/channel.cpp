#include "tuner/worker/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "attnforge/error.h"

namespace attnforge {
namespace {

constexpr std::uint32_t kMostTexts = 1 << 16, kMostBytes = 1u << 30;

using Clock = std::chrono::steady_clock;

/// Whether `events` of the socket came within the time; -1: it is gone.
int wait_for(int socket, short events, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd polled{socket, events, 0};
    const int count = poll(&polled, 1, static_cast<int>(std::clamp<long>(left.count(), 0, 60000)));
    if (count < 0 && errno != EINTR) return -1;
    if (count > 0) return 1;
    if (Clock::now() >= end) return 0;
  }
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, 1e6)));
}

void append_size(std::string& bytes, std::size_t size) {
  const auto value = static_cast<std::uint32_t>(size);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

Channel::Channel(Channel&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(received_, other.received_);
  return *this;
}

void Channel::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool Channel::send(const Message& message, double seconds) {
  std::string bytes;
  append_size(bytes, message.size());
  for (const std::string& text : message) {
    append_size(bytes, text.size());
    bytes += text;
  }
  const Clock::time_point end = after(seconds);
  for (std::size_t sent = 0; open() && sent < bytes.size();) {
    const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (wait_for(socket_, POLLOUT, end) != 1) close();
    } else {
      close();
    }
  }
  return open();
}

bool Channel::take(Message& message, bool& broken) {
  std::size_t at = 0;
  const auto size = [&](std::uint32_t most, std::uint32_t& value) {
    if (received_.size() - at < sizeof value) return false;
    std::memcpy(&value, received_.data() + at, sizeof value);
    at += sizeof value;
    broken |= value > most;
    return !broken;
  };
  std::uint32_t texts = 0, bytes = 0;
  if (!size(kMostTexts, texts)) return false;
  Message whole;
  for (std::uint32_t i = 0; i < texts; ++i) {
    if (!size(kMostBytes, bytes) || received_.size() - at < bytes) return false;
    whole.push_back(received_.substr(at, bytes));
    at += bytes;
  }
  broken |= whole.empty();
  received_.erase(0, at);
  message = std::move(whole);
  return !broken;
}

Channel::Got Channel::receive(Message& message, double seconds) {
  const Clock::time_point end = after(seconds);
  for (;;) {
    bool broken = false;
    if (take(message, broken)) return Got::kMessage;
    const int came = broken || !open() ? -1 : wait_for(socket_, POLLIN, end);
    if (came == 0) return Got::kNothing;
    char bytes[1 << 16];
    const ssize_t count = came < 0 ? 0 : recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) {
      received_.append(bytes, static_cast<std::size_t>(count));
    } else if (came < 0 || count == 0 || (errno != EAGAIN && errno != EINTR)) {
      close();
      return Got::kGone;
    }
  }
}

std::string text_of(double value) { return fmt::format("{}", value); }

double number_of(const std::string& text) {
  double number = 0;  // strtod() would read the decimal point of the caller's locale
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void append(Message& message, const Measurement& m) {
  message.insert(message.end(),
                 {std::string(to_string(m.status)), text_of(m.time_us), text_of(m.noise),
                  std::to_string(m.samples), text_of(m.max_error), text_of(m.clock_mhz), m.detail});
}

Measurement measurement_at(const Message& message, std::size_t at) {
  ATTNFORGE_ASSERT(message.size() >= at + kMeasurementTexts, "a worker answers with measurements");
  return {.status = parse_status(message[at]),
          .time_us = number_of(message[at + 1]),
          .noise = number_of(message[at + 2]),
          .samples = static_cast<int>(number_of(message[at + 3])),
          .max_error = number_of(message[at + 4]),
          .clock_mhz = number_of(message[at + 5]),
          .detail = message[at + 6]};
}

}  // namespace attnforge
