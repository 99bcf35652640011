// cache.h - look into and carry around the database of winners. For people and fleet tools; plans
// use it by themselves.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "attnforge/cxx20.h"

namespace attnforge {

/// $ATTNFORGE_CACHE, else $XDG_CACHE_HOME/attnforge/attnforge.db, else
/// ~/.cache/attnforge/attnforge.db.
ATTNFORGE_API std::string default_cache_path();

/// The best try of a problem on a GPU class.
struct CacheEntry {
  std::string problem{};       // text form of the bucket's problem
  std::string device_class{};  // text form, e.g. "NVIDIA H200 sm_90a sms=132 ..."
  std::string config{};
  std::string digest{};  // of the kernel's self-contained source and options
  double time_us = 0;
  double noise = 0;
  int tries = 0;  // stored for this problem and GPU class
  int failures = 0;
  bool has_cubin = false;
  bool estimated = false;  // ranked by the model, never measured
  std::string driver{};    // provenance of the winning measurement
  std::string nvrtc{};
  std::string measured_at{};  // UTC, ISO 8601
};

struct CacheStats {
  std::string path{};
  std::int64_t file_bytes = 0;
  int schema_version = 0;
  int problems = 0;
  int device_classes = 0;
  int tries = 0;
  int cubins = 0;
  std::int64_t cubin_bytes = 0;  // stored (compressed)
  std::string journal_mode{};
  bool healthy = true;   // pages, rules, and every index against its table
  std::string health{};  // "ok", or the first few faults
};

/// `path` "" is default_cache_path(). All throw Error(kCache) with what to do, and none creates a
/// missing file but import. Filters are substrings of the problem's text; "" is all. Rows that
/// cannot be read (damage) do not hide the others: `left_out` gets a sentence for each.
ATTNFORGE_API std::vector<CacheEntry> cache_list(const std::string& path,
                                                 const std::string& filter = "",
                                                 std::vector<std::string>* left_out = nullptr);
/// Every try of the problems that match, best first: one line of JSON each.
ATTNFORGE_API std::vector<std::string> cache_show(const std::string& path,
                                                  const std::string& filter,
                                                  std::vector<std::string>* left_out = nullptr);
ATTNFORGE_API CacheStats cache_stats(const std::string& path);
/// Everything that is wrong with the file, a sentence each: pages, indexes against their tables,
/// rows that refer to nothing or cannot be read, checksums of cubins. Empty if all is well.
ATTNFORGE_API std::vector<std::string> cache_verify(const std::string& path);
/// "" if plans can use the file, or can make it; else why they go on without: it is not a database
/// of this attnforge, or others could have written it. Damage and locks do not count: they pass.
/// Never throws.
ATTNFORGE_API std::string cache_objection(const std::string& path);
/// One JSON object a line: measurements, not cubins (they are compiled again where they are
/// imported). Returns how many lines were written or taken. Import is a merge: it never loses a
/// try, and the same file twice is the same as once. A bad line throws with its number and nothing
/// of the file is taken.
ATTNFORGE_API int cache_export(const std::string& path, std::ostream& out,
                               const std::string& filter = "",
                               std::vector<std::string>* left_out = nullptr);
ATTNFORGE_API int cache_import(const std::string& path, std::istream& in);
/// Deletes tries (and what only they used) of the problems that match; returns how many. Works on a
/// full disk too.
ATTNFORGE_API int cache_clear(const std::string& path, const std::string& filter,
                              bool cubins_only = false);

}  // namespace attnforge
