// import_lines.cpp - any text as an export of a database: nothing of it is taken, or all of it, and
// then export and import again change nothing.
#include <fmt/format.h>

#include <sstream>

#include "attnforge/cache.h"
#include "cache/cache.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {
namespace {

constexpr const char* kTry =
    R"({"kind":"try","format":1,"problem":"fwd bf16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=64 seqlen_kv=64 head_dim=64 head_dim_v=64","device_class":"NVIDIA H200 sm_90a sms=132 memory_clock_mhz=3201 l2_bytes=62914560","config":"fwd_naive num_threads=128","digest":"d","family":"fwd_naive","rigor":"full","estimate_us":12.5,"estimated":false,"status":"ok","time_us":12.25,"noise":0.01,"samples":9,"max_error":0.001,"clock_mhz":1755.0,"detail":"","driver":"13000","nvrtc":"13.0","uuid":"GPU-1","attnforge_version":"0.1.0","measured_at":"2025-03-14T09:26:53Z"})";
constexpr const char* kFailed =
    R"({"kind":"try","format":1,"problem":"fwd fp16","device_class":"x sm80","config":"c","digest":"","family":"","rigor":"quick","estimate_us":0,"estimated":false,"status":"wrong_result","time_us":0,"noise":0,"samples":0,"max_error":null,"clock_mhz":0,"detail":"off by 1","driver":"","nvrtc":"","uuid":"","attnforge_version":"","measured_at":""})";
constexpr const char* kSearch =
    R"({"kind":"search","format":1,"problem":"fwd bf16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=64 seqlen_kv=64 head_dim=64 head_dim_v=64","device_class":"NVIDIA H200 sm_90a sms=132 memory_clock_mhz=3201 l2_bytes=62914560","rigor":"full","winner":"fwd_naive num_threads=128","finished_at":"2025-03-14T09:27:53Z"})";

std::string exported(const std::string& path) {
  std::ostringstream out;
  cache_export(path, out);
  return out.str();
}

int imported(const std::string& path, const std::string& text) {
  std::istringstream in(text);
  return cache_import(path, in);
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const ScratchFolder folder;
  folder.empty();
  const std::string path = folder.path("attnforge.db"), copy = folder.path("copy.db");
  const std::string text = text_of(data, size);
  int lines = 0;
  if (!accepts([&] { lines = imported(path, text); })) {
    require(!accepts([&] { cache_stats(path); }), "a refused import made a file");
    return 0;
  }
  if (lines == 0) return 0;
  const std::string first = exported(path);
  imported(path, text);
  require(exported(path) == first, "the same import again changed the database: " + first);
  imported(copy, first);
  require(exported(copy) == first, "a copy differs from " + first);
  require(cache_stats(path).healthy, "the database is not sound");
  cache_list(path);
  cache_show(path, "");
  return 1;
}

std::vector<std::string> corpus() {
  return {kTry, kFailed, kSearch, fmt::format("{}\n\n{}\r\n{}\n", kTry, kSearch, kFailed),
          fmt::format("{}\n{}", kFailed, kFailed)};
}

std::vector<std::string> words() {
  return {"\"kind\":",
          "\"try\"",
          "\"search\"",
          "\"format\":",
          "null",
          "true",
          "false",
          "{}",
          "[]",
          "\"\"",
          ",",
          ":",
          "\"status\":\"ok\"",
          "\"rigor\":\"exhaustive\"",
          "\"time_us\":",
          "\"\\u0000\"",
          "\"\\ud800\"",
          "\"\\u001b[2J\"",
          "\"x\\ny\"",
          "1e-300",
          "\"estimated\":true",
          "\"samples\":",
          kTry,
          kSearch,
          "\n",
          "[[[[[[[[",
          "{\"a\":"};
}

}  // namespace attnforge::fuzz
