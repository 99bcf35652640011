// user_code_compile_test.cpp - NVRTC compiles the user's texts into the families that take them:
// without spills, at the registers of the same kernel without them, give or take what they need
// themselves. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compiler.h"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {


TEST(UserCodeCompile, Look) {
  const char* const text = std::getenv("LOOK_PROBLEM");
  if (text == nullptr) GTEST_SKIP();
  const Problem problem = parse_problem(text);
  const DeviceFacts& device = typical_device(std::getenv("LOOK_ARCH"));
  const Family& family = *find_family(std::getenv("LOOK_FAMILY"));
  const char* const config_text = std::getenv("LOOK_CONFIG");
  const Config config = config_text ? parse_config(config_text)
                                    : candidates(family, problem, device).front().config;
  const Source source = family.render(config, problem);
  if (std::getenv("LOOK_SOURCE")) fmt::print("{}\n", source.entry);
  const Cubin cubin = compile(source, device.arch);
  fmt::print("{}: {} registers, spills {}+{}, {} bytes, {}\n{}\n", to_string(config),
             cubin.registers, cubin.spill_store_bytes, cubin.spill_load_bytes, cubin.bytes.size(),
             cubin.wgmma_serialized ? "SERIALIZED" : "", cubin.log);
  if (const char* out = std::getenv("LOOK_OUT")) {
    FILE* file = std::fopen(out, "wb");
    std::fwrite(cubin.bytes.data(), 1, cubin.bytes.size(), file);
    std::fclose(file);
  }
}

}  // namespace
}  // namespace attnforge
