// journal.cpp - the choice of the journal. docs/CACHE_FORMAT.md gives the measurements behind it.
#include "cache/file/journal.h"

#include <fmt/format.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

// From this version on, two connections that write and checkpoint at once cannot damage a WAL
// database.
constexpr int kSafeWalVersion = 3051003;

// f_type of statfs(2) for file systems whose locks or shared memory other machines do not see, or
// that user code serves.
constexpr std::uint32_t kNotLocal[] = {
    0x6969,      // NFS
    0x517B,      // SMB
    0xFE534D42,  // SMB2
    0xFF534D42,  // CIFS
    0x65735546,  // FUSE: sshfs, GlusterFS, virtiofs, ...
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
    0x00C36400,  // Ceph
    0xAAD7AAEA,  // PanFS
    0x5346414F,  // OpenAFS
    0x6B414653,  // kAFS
    0x73757245,  // Coda
    0x564C,      // NCP
    0x01021997,  // 9P
    0x7461636F,  // OCFS2
    0x01161970,  // GFS2
    0x786F4256,  // VirtualBox shared folder
};

}  // namespace

std::string wal_objection(const JournalFacts& facts) {
  if (!facts.wal_asked) return "not asked for";
  if (facts.sqlite_version < kSafeWalVersion)
    return fmt::format(
        "SQLite {}.{}.{} can damage a WAL file when two processes write (fixed in 3.51.3)",
        facts.sqlite_version / 1000000, facts.sqlite_version / 1000 % 1000,
        facts.sqlite_version % 1000);
  if (!facts.local_file_system) return "the file is not on a local file system";
  return "";
}

bool on_local_file_system(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct statfs facts = {};
  if (statfs(folder.empty() ? "." : folder.c_str(), &facts) != 0) return false;
  const auto type = static_cast<std::uint32_t>(facts.f_type);
  return std::find(std::begin(kNotLocal), std::end(kNotLocal), type) == std::end(kNotLocal);
}

bool wal_asked_for() {
  const char* value = secure_getenv("ATTNFORGE_CACHE_WAL");
  const std::string_view word = value ? value : "";
  if (!word.empty() && word != "0" && word != "1") {
    throw_error(ErrorCode::kInvalidArgument,
                "ATTNFORGE_CACHE_WAL={}: it is 1 (a write-ahead log) or 0; or unset it", word);
  }
  return word == "1";
}

void set_journal(Database& database, const std::string& path, const LogFunction& log) {
  const JournalFacts facts{.wal_asked = wal_asked_for(),
                           .sqlite_version = sqlite3_libversion_number(),
                           .local_file_system = on_local_file_system(path)};
  const std::string objection = wal_objection(facts);
  if (facts.wal_asked && !objection.empty() && log)
    log(LogLevel::kWarning, fmt::format("cache: ATTNFORGE_CACHE_WAL=1 is ignored: {}", objection));

  // TRUNCATE keeps the journal file from commit to commit: a commit costs no creation and no
  // deletion in the folder.
  const bool wal_now = database.text("PRAGMA journal_mode") == "wal";
  try {
    if (objection.empty()) {
      if (!wal_now) database.execute("PRAGMA journal_mode = WAL");
    } else {
      database.execute("PRAGMA journal_mode = TRUNCATE");
    }
  } catch (const SqliteError& error) {
    if (error.corrupt()) throw;
    if (log)
      log(LogLevel::kWarning, fmt::format("cache: {} keeps its journal mode {}: {}", path,
                                          wal_now ? "wal" : "truncate", error.what()));
  }
  database.execute("PRAGMA synchronous = NORMAL");
}

}  // namespace attnforge
