// channel.h - messages between a supervisor and a worker over a socket. A message is a list of
// texts, the first of which says what it is.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attnforge/tune.h"

namespace attnforge {

/// Longer than a worker that still reads takes for any message.
inline constexpr double kSendSeconds = 10;

using Message = std::vector<std::string>;

/// One end of a socket, which it owns. Not thread-safe. Nothing throws, but receive() for lack of
/// memory: an end that is gone is an answer.
class Channel {
 public:
  explicit Channel(int socket = -1) : socket_(socket) {}
  ~Channel() { close(); }
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;

  bool open() const { return socket_ >= 0; }
  void close();

  /// False, and closed, if the other end is gone or did not read for `seconds`.
  bool send(const Message& message, double seconds);

  enum class Got { kMessage, kNothing, kGone };
  /// Waits for a whole message for at most `seconds`; what of one has come is kept. kGone, and
  /// closed, also after what is no message.
  Got receive(Message& message, double seconds);

 private:
  bool take(Message& message, bool& broken);

  int socket_;
  std::string received_;  // and not yet taken
};

// Numbers and measurements as texts of a message.
std::string text_of(double value);
double number_of(const std::string& text);
void append(Message& message, const Measurement& measurement);
/// The one whose first text is message[at]. Throws Error(kInternal) where there is none.
Measurement measurement_at(const Message& message, std::size_t at);
inline constexpr std::size_t kMeasurementTexts = 7;

}  // namespace attnforge
