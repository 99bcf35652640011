// machine_code_digest_test.cpp - a source that was only put in another order is the code that was
// measured; another instruction is not.
#include "runtime/compile/machine_code_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"

namespace attnforge {
namespace {

using Bytes = std::vector<std::byte>;

constexpr const char* kFirst = "inline constexpr int kFirst = 3, kThird = 7;\n";
constexpr const char* kSecond = "inline constexpr int kSecond = 5;\n";

Bytes cubin_of(const std::string& constants, int added) {
  Source source;
  source.name = "kernel";
  source.entry = source.text = constants +
                               "extern \"C\" __global__ void kernel(int* out) {\n"
                               "  *out = kFirst * kSecond * kThird + " +
                               std::to_string(added) + ";\n}\n";
  return compile(source, arch_named("80")).bytes;
}

bool same_machine_code(const Bytes& a, const Bytes& b) {
  return machine_code_digest(a) == machine_code_digest(b);
}

TEST(SameMachineCode, IsSeenWhereConstantsOfTheSourceChangedTheirOrder) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Bytes code = cubin_of(std::string(kFirst) + kSecond, 0);
  EXPECT_TRUE(same_machine_code(code, code));
  const Bytes moved = cubin_of(std::string(kSecond) + kFirst, 0);
  EXPECT_NE(code, moved) << "nothing is tested: choose other constants";
  EXPECT_TRUE(same_machine_code(code, moved));
  EXPECT_FALSE(same_machine_code(code, cubin_of(std::string(kFirst) + kSecond, 1)));
}

TEST(SameMachineCode, IsSeenWhereAConfigGainedAFieldThatIsZero) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const auto of = [](const std::string& fields, const std::string& values) {
    return cubin_of(std::string(kFirst) + kSecond + "struct Fields { int " + fields +
                        "; };\ninline constexpr Fields kFields = {" + values + "};\n",
                    0);
  };
  const Bytes code = of("a", "4"), more = of("a, b", "4, 0");
  EXPECT_NE(code, more) << "nothing is tested: choose other constants";
  EXPECT_TRUE(same_machine_code(code, more));
  EXPECT_FALSE(same_machine_code(code, of("a, b", "4, 9")));
}

TEST(SameMachineCode, OfWhatIsNoWholeCubinIsEqualBytes) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Bytes code = cubin_of(std::string(kFirst) + kSecond, 0);
  const Bytes none, text(100, std::byte{'x'});
  EXPECT_TRUE(same_machine_code(none, none));
  EXPECT_TRUE(same_machine_code(text, text));
  EXPECT_FALSE(same_machine_code(text, code));
  for (std::size_t size = 0; size < code.size(); size += 7) {
    Bytes cut(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(same_machine_code(code, cut)) << size;
    std::ranges::fill(cut, std::byte{0xff});
    EXPECT_FALSE(same_machine_code(cut, code)) << size;
  }
}

}  // namespace
}  // namespace attnforge
