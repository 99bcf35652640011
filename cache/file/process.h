// process.h - who a process is, and whether another one still runs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace attnforge {

struct ProcessName {
  std::string host;
  std::string boot_id;        // changes with every boot; "" if unknown
  std::string pid_namespace;  // a pid means nothing in another container; "" if unknown
  std::int64_t pid = 0;
  std::int64_t start = 0;  // clock ticks after boot; 0 if unknown
};

ProcessName this_process();

/// True only if `other` can be seen from here and does not run any more: gone, a zombie, or its pid
/// is another process's now. False for one on another machine, before another boot or in another
/// container: nothing is known of it.
bool is_dead(const ProcessName& other);

/// What the system knows of a user; nothing if there is none of that number.
struct Account {
  std::string name, home;
  gid_t group;
};
std::optional<Account> account_of(uid_t user);

/// 32 random hexadecimal digits.
std::string random_name();

}  // namespace attnforge
