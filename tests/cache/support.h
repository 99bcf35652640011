// support.h - what the cache's tests share: a folder of their own, a log, tries, child processes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/file/database.h"

namespace attnforge::testing {

inline constexpr const char* kProblem =
    "fwd bf16 batch=1 num_heads_q=32 num_heads_kv=8 seqlen_q=4096 seqlen_kv=4096 head_dim=128 "
    "causal";
inline constexpr const char*
    kH200 = "NVIDIA H200 sm_90a sms=132 memory_clock_mhz=3201 l2_bytes=62914560";
inline constexpr const char*
    kH100 = "NVIDIA H100 PCIe sm_90a sms=114 memory_clock_mhz=1593 l2_bytes=52428800";
inline constexpr const char*
    kA10 = "NVIDIA A10 sm_86 sms=72 memory_clock_mhz=6251 l2_bytes=6291456";
inline constexpr const char* kDriver = "13000";
inline constexpr const char* kNvrtc = "13.0 cl-36424714";

/// A new folder, removed with its contents.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> files() const;  // names, sorted

 private:
  std::filesystem::path path_;
};

class CacheTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path("attnforge.db"); }
  LogFunction log() {
    return [this](LogLevel, std::string_view message) { messages_.emplace_back(message); };
  }
  /// A connection beside the Cache, to look and to tamper.
  Database raw(int flags = SQLITE_OPEN_READWRITE) const { return Database(path(), flags); }

  Folder folder_;
  std::vector<std::string> messages_;
};

std::string config(int i);                       // "fwd_test block_m=<i>"
std::string digest_of(std::string_view config);  // today's; "digest of <config>"
/// A good try of config(i) on an H200 that took `time_us`.
Try good_try(int i, double time_us, Rigor rigor = Rigor::kFull);
Try failed_try(int i, Status status, const std::string& detail = "");
Cache::Current current(const std::string& device_class = kH200, int sm = 90);
Cubin cubin(const std::string& digest, std::size_t bytes = 40'000);

void write_file(const std::string& path, std::string_view bytes);
std::string read_file(const std::string& path);

/// Bits of a file, counted from its first one. For databases with pages of SQLite's default size.
/// Those of the pages of indexes that mean something (headers, pointers, cells), and of tables
/// without rowid, which are kept like indexes, too if asked for.
std::vector<std::size_t> index_bits(const std::string& path, bool with_tables = false);

/// Turns single bits of a file over. Keeps it open: to close any descriptor of a database ends the
/// locks of this process on it.
class BitFlipper {
 public:
  explicit BitFlipper(const std::string& path);
  ~BitFlipper();
  BitFlipper(const BitFlipper&) = delete;
  BitFlipper& operator=(const BitFlipper&) = delete;
  void flip(std::size_t bit);  // a second time undoes it

 private:
  int descriptor_;
};

/// Runs `work` in a forked child and returns its exit status: 0 if it returned true; 1 if false or
/// an exception, with the text on stderr. `work` must not use what the parent has open.
int in_child(const std::function<bool()>& work);
pid_t start_child(const std::function<bool()>& work);
int wait_for(pid_t child);  // exit status, or 128 + signal

/// Gives up root's right to write everywhere, in a child; the folders of the tests stay readable.
void become_nobody();
/// Makes a file or folder that user's; nothing if the tests do not run as root.
void give_to_nobody(const std::string& path);

}  // namespace attnforge::testing
