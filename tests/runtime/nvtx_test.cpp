// nvtx_test.cpp - a profiler sees the ranges; without one there are none. The switch is read at
// load, hence two processes.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::array<char, 4096> part;
  while (const std::size_t size = fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), size);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

TEST(Nvtx, ProfilerSeesNestedRanges) {
  EXPECT_EQ(output_of("NVTX_INJECTION64_PATH='" FAKE_PROFILER "' '" NVTX_PROGRAM "'"),
            "push attnforge plan\n"
            "push attnforge compile fwd_naive_fp32\n"
            "pop\n"
            "active\n"
            "pop\n");
}

TEST(Nvtx, OffWithoutProfiler) {
  EXPECT_EQ(output_of("env -u NVTX_INJECTION64_PATH '" NVTX_PROGRAM "'"), "inactive\n");
}

}  // namespace
