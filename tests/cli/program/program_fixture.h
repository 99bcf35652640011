// program_fixture.h - the built program as a user meets it, on a machine without a GPU (if there is
// one, it is hidden), with an NVRTC that compiles nothing.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "attnforge/inspect.h"
#include "tests/cli/program/program.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {

class Program : public testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments, Environment more = {}) {
    return run_program(arguments, environment(std::move(more)));
  }
  /// With the machine's own NVRTC.
  Outcome run_with_nvrtc(const std::vector<std::string>& arguments) {
    Environment own = environment();
    own.erase("ATTNFORGE_NVRTC");
    return run_program(arguments, own);
  }
  Environment environment(Environment more = {}) const {
    more.insert({{"ATTNFORGE_CACHE", database()},
                 {"ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC},
                 {"CUDA_VISIBLE_DEVICES", ""},
                 {"ATTNFORGE_LOG", "warning"}});
    return more;
  }
  std::string database() const { return folder_.file("cache.db"); }

  /// Whether a C++ program of this machine finds NVRTC.
  static bool has_nvrtc() {
    for (const Check& check : doctor(":memory:")) {
      if (check.name == "nvrtc") return check.state != Check::State::kFailed;
    }
    return false;
  }

  const TemporaryFolder folder_;
};

}  // namespace attnforge::cli
