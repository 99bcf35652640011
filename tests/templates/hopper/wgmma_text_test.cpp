// wgmma_text_test.cpp - the generated wgmma instructions: names, shapes and operands.
#include "templates/hopper/wgmma_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "attnforge/error.h"
#include "templates/base.cuh"

namespace attnforge {
namespace {

using ::testing::HasSubstr;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

/// The body of one of the struct's functions.
std::string function(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find("static void " + name + "(");
  EXPECT_NE(begin, std::string::npos) << name;
  return text.substr(begin, text.find("\n  }\n", begin) - begin);
}

/// Numbers of the operands (%0, %1, ...) that the instruction names.
std::set<int> operands(const std::string& body) {
  std::set<int> found;
  const std::regex number("%([0-9]+)");
  for (std::sregex_iterator at(body.begin(), body.end(), number), end; at != end; ++at)
    found.insert(std::stoi((*at)[1]));
  return found;
}

TEST(WgmmaText, NamesTheShapeAndTheTypes) {
  for (const int n : {8, 72, 128, 256}) {
    const std::string bf16 = wgmma_text(kBf16, n), fp16 = wgmma_text(kFp16, n);
    EXPECT_THAT(bf16, HasSubstr(fmt::format("struct Wgmma<kBf16, {}> {{", n)));
    EXPECT_THAT(fp16, HasSubstr(fmt::format("struct Wgmma<kFp16, {}> {{", n)));
    const char* const form = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} ";
    EXPECT_EQ(count(bf16, fmt::format(fmt::runtime(form), n, "bf16", "bf16")), 3u);
    EXPECT_EQ(count(fp16, fmt::format(fmt::runtime(form), n, "f16", "f16")), 3u);
  }
}

TEST(WgmmaText, EveryOperandIsNamedOnceAndInOrder) {
  struct Form {
    const char* name;
    int inputs;  // after the registers of d: descriptors, registers of a, accumulate
  };
  for (int n = 8; n <= 256; n += 8) {
    const std::string text = wgmma_text(kBf16, n);
    for (const Form& form : {Form{"smem_smem", 3}, Form{"regs_smem", 6}, Form{"regs_smem_mn", 5}}) {
      SCOPED_TRACE(fmt::format("n={} {}", n, form.name));
      const std::string body = function(text, form.name);
      EXPECT_THAT(body, HasSubstr(fmt::format("float (&d)[{}][4]", n / 8)));
      // d: 64 x n numbers in 128 threads, each an operand that is read and written.
      EXPECT_EQ(count(body, "\"+f\"("), static_cast<std::size_t>(n / 2));
      EXPECT_EQ(count(body, "\"l\"(") + count(body, "\"r\"("),
                static_cast<std::size_t>(form.inputs));
      EXPECT_THAT(body, HasSubstr(fmt::format("\"+f\"(d[{}][3])", n / 8 - 1)));
      const std::set<int> named = operands(body);
      EXPECT_EQ(named.size(), static_cast<std::size_t>(n / 2 + form.inputs));
      EXPECT_EQ(*named.begin(), 0);
      EXPECT_EQ(*named.rbegin(), n / 2 + form.inputs - 1);
    }
  }
}

TEST(WgmmaText, ScoresMayStartFromZeroAndOutputsAlwaysAccumulate) {
  const std::string text = wgmma_text(kFp16, 64);
  // Predicate, signs of a and b, and for what lies in shared memory whether it is MN-major.
  EXPECT_THAT(function(text, "smem_smem"), HasSubstr("%32, %33, p, 1, 1, 0, 0;"));
  EXPECT_THAT(function(text, "smem_smem"), HasSubstr("setp.ne.b32 p, %34, 0;"));
  EXPECT_THAT(function(text, "regs_smem"), HasSubstr("{%32, %33, %34, %35}, %36, p, 1, 1, 0;"));
  EXPECT_THAT(function(text, "regs_smem"), HasSubstr("setp.ne.b32 p, %37, 0;"));
  EXPECT_THAT(function(text, "regs_smem_mn"), HasSubstr("{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"));
}

TEST(WgmmaText, Of8BitsTakesNoOperandThatIsMnMajor) {
  const std::string text = wgmma_text(kE4m3, 64);
  EXPECT_EQ(count(text, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "), 2u);
  EXPECT_THAT(function(text, "smem_smem"), HasSubstr("%32, %33, p, 1, 1; }"));
  EXPECT_THAT(function(text, "regs_smem"), HasSubstr("{%32, %33, %34, %35}, %36, p, 1, 1; }"));
  EXPECT_EQ(count(text, "regs_smem_mn"), 0u);
}

TEST(WgmmaText, AProductNamesTheRegistersOfEachStep) {
  for (const int n : {8, 64, 192}) {
    const std::string text = wgmma_product_text(kBf16, {WgmmaProduct::kRegsMn, n, 3});
    EXPECT_THAT(text, HasSubstr(fmt::format("struct WgmmaRegsMn<kBf16, {}, 3> {{", n)));
    const std::string body = function(text, "add");
    EXPECT_EQ(count(body, "\"r\"(a["), 12u);
    EXPECT_EQ(count(body, "wgmma.mma_async"), 3u);
    EXPECT_EQ(count(body, "wgmma.fence"), 1u);
    const std::set<int> named = operands(body);
    EXPECT_EQ(named.size(), static_cast<std::size_t>(n / 2 + 12 + 2));
    EXPECT_EQ(*named.rbegin(), n / 2 + 13);
    for (int k = 0; k < 3; ++k) {
      const int a = n / 2 + 4 * k;
      EXPECT_THAT(body,
                  HasSubstr(fmt::format("add.s64 b, %{}, %{} * {};", n / 2 + 12, n / 2 + 13, k)));
      EXPECT_THAT(body, HasSubstr(fmt::format("{{%{}, %{}, %{}, %{}}}, b, 1, 1, 1, 1;", a, a + 1,
                                              a + 2, a + 3)));
    }
  }
}

TEST(WgmmaText, AProductFromSharedMemoryBeginsAtZeroAndCountsChunksOfFourSteps) {
  const std::string scores = function(wgmma_product_text(kFp16, {WgmmaProduct::kKK, 64, 6}), "set");
  EXPECT_EQ(count(scores, "a, b, 0, 1, 1, 0, 0;"), 1u);
  EXPECT_EQ(count(scores, "a, b, 1, 1, 1, 0, 0;"), 5u);
  EXPECT_LT(scores.find("a, b, 0,"), scores.find("a, b, 1,"));
  EXPECT_THAT(scores, HasSubstr("add.s64 a, %32, %34 * 0 + 6; add.s64 b, %33, %35 * 0 + 6;"));
  EXPECT_THAT(scores, HasSubstr("add.s64 a, %32, %34 * 1 + 2; add.s64 b, %33, %35 * 1 + 2;"));
  const std::string dq = function(wgmma_product_text(kFp16, {WgmmaProduct::kMnK, 64, 6}), "set");
  EXPECT_THAT(dq, HasSubstr("add.s64 a, %32, %34 * 5; add.s64 b, %33, %35 * 1 + 2;"));
  EXPECT_EQ(count(dq, "a, b, 1, 1, 1, 1, 0;"), 5u);
}

TEST(WgmmaText, RefusesShapesThatTheInstructionDoesNotHave) {
  for (const int n : {-8, 0, 4, 12, 100, 257, 264, 512})
    EXPECT_THROW(wgmma_text(kBf16, n), Error) << n;
  EXPECT_THROW(wgmma_product_text(kBf16, {WgmmaProduct::kKK, 12, 4}), Error);
  EXPECT_NO_THROW(wgmma_text(kBf16, 8));
  EXPECT_NO_THROW(wgmma_text(kBf16, 256));
}

}  // namespace
}  // namespace attnforge
