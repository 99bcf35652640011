#include "cache/file/set_aside.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "cache/file/open.h"
#include "cache/file/trust.h"
#include "generator/text/utc.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

// Held while a damaged file is renamed, so that two processes that notice it together do not rename
// the new file too. A lock on the folder leaves no lock file behind. Where it is not to be had
// (NFS) the rename goes ahead without.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path) {
    descriptor_ = ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; descriptor_ >= 0 && tries < 100; ++tries) {
      if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

// "20250314T092653Z", and a number where two files are set aside within a second.
std::string free_name(const std::string& path) {
  std::string stamp;
  for (const char c : utc_now())
    if (c != '-' && c != ':') stamp += c;
  std::string name = fmt::format("{}.corrupt-{}", path, stamp);
  std::error_code ignored;
  for (int i = 2; fs::exists(name, ignored); ++i)
    name = fmt::format("{}.corrupt-{}-{}", path, stamp, i);
  return name;
}

}  // namespace

bool cannot_be_opened(const std::string& path) {
  try {
    Database database(path, SQLITE_OPEN_READONLY);
    file_state(database);
    return false;
  } catch (const SqliteError& error) {
    return error.corrupt();
  }
}

SetAside set_aside(const std::string& path, const std::function<bool()>& is_damaged) {
  const FolderLock lock(path);
  if (!is_damaged()) return {};
  if (!may_be_set_aside(path))
    return {"", "it does not begin as a database of attnforge and is left as it is"};
  const std::string name = free_name(path);
  std::error_code failed;
  fs::rename(path, name, failed);
  if (failed) return {"", fmt::format("it cannot be renamed: {}", failed.message())};
  // A journal left behind would be rolled back into the new file.
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    std::error_code ignored;
    fs::rename(path + suffix, name + suffix, ignored);
  }
  return {name, ""};
}

}  // namespace attnforge
