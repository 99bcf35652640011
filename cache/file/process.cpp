#include "cache/file/process.h"

#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <vector>

namespace attnforge {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct ProcState {
  char letter;         // R, S, D, Z, ...
  std::int64_t start;  // field 22, clock ticks after boot
};

// The second field of /proc/<pid>/stat is the program's name in brackets, which may itself hold
// brackets and blanks.
std::optional<ProcState> proc_state(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcState state{};
  fields >> state.letter;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> state.start)) return std::nullopt;
  return state;
}

}  // namespace

ProcessName this_process() {
  ProcessName name;
  char text[256] = {};
  if (gethostname(text, sizeof(text) - 1) == 0) name.host = text;
  name.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  char link[64] = {};
  if (readlink("/proc/self/ns/pid", link, sizeof(link) - 1) > 0) name.pid_namespace = link;
  name.pid = getpid();
  if (const auto state = proc_state(name.pid)) name.start = state->start;
  return name;
}

bool is_dead(const ProcessName& other) {
  const ProcessName here = this_process();
  const bool visible = !here.boot_id.empty() && here.boot_id == other.boot_id &&
                       !here.pid_namespace.empty() && here.pid_namespace == other.pid_namespace &&
                       other.pid > 0;
  if (!visible) return false;
  if (kill(static_cast<pid_t>(other.pid), 0) != 0 && errno == ESRCH) return true;
  // Nothing in /proc is no proof of death: other users' processes can be hidden.
  const auto state = proc_state(other.pid);
  if (!state) return false;
  if (state->letter == 'Z' || state->letter == 'X') return true;
  return other.start != 0 && state->start != other.start;
}

std::optional<Account> account_of(uid_t user) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || !found) return {};
  return Account{entry.pw_name, entry.pw_dir ? entry.pw_dir : "", entry.pw_gid};
}

std::string random_name() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 4; ++i) name += fmt::format("{:08x}", random());
  return name;
}

}  // namespace attnforge
