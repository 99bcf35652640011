// compile_log_test.cpp - logs as NVRTC 12.4, 13.0 and 13.5 wrote them.
#include "runtime/compile/compile_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/compile/code_errors.h"

namespace attnforge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSpilling13 = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spill' for 'sm_90a'
ptxas info    : Function properties for spill
ptxas         .     1344 bytes stack frame, 1752 bytes spill stores, 2400 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1344 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 102.566 ms
)";

TEST(CompileLog, ResourcesOfOneKernel) {
  const CompileLog log = read_compile_log(kSpilling13);
  EXPECT_TRUE(log.has_resources);
  EXPECT_EQ(log.registers, 32);
  EXPECT_EQ(log.smem_static_bytes, 1024);
  EXPECT_EQ(log.stack_bytes, 1344);
  EXPECT_EQ(log.spill_store_bytes, 1752);
  EXPECT_EQ(log.spill_load_bytes, 2400);
  EXPECT_FALSE(log.wgmma_serialized);
  EXPECT_EQ(log.remarks, "");
}

TEST(CompileLog, OlderFormWithoutSharedMemory) {
  const CompileLog log = read_compile_log(
      "ptxas info    : 0 bytes gmem, 24 bytes cmem[4]\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
      "ptxas info    : Function properties for k\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 30 registers, 380 bytes cmem[0]\n");
  EXPECT_EQ(log.registers, 30);
  EXPECT_EQ(log.smem_static_bytes, 0);
  EXPECT_EQ(log.stack_bytes, 0);
  EXPECT_EQ(log.remarks, "");
}

TEST(CompileLog, SeveralFunctionsGiveTheLargestAndAllSpills) {
  const CompileLog log = read_compile_log(
      "ptxas info    : Function properties for inner\n"
      "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Function properties for a\n"
      "    48 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 2048 bytes smem\n"
      "ptxas info    : Function properties for b\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem\n");
  EXPECT_EQ(log.registers, 168);
  EXPECT_EQ(log.smem_static_bytes, 4096);
  EXPECT_EQ(log.stack_bytes, 48);
  EXPECT_EQ(log.spill_store_bytes, 12);
  EXPECT_EQ(log.spill_load_bytes, 16);
}

TEST(CompileLog, EachEntryFunctionHasItsOwn) {
  const CompileLog log = read_compile_log(
      "ptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
      "ptxas info    : Function properties for a\n"
      "    48 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 2048 bytes smem\n"
      "ptxas info    : Compiling entry function 'b' for 'sm_90a'\n"
      "ptxas info    : Function properties for b\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem\n");
  ASSERT_EQ(log.kernels.size(), 2u);
  const KernelResources &a = log.kernels.at("a"), &b = log.kernels.at("b");
  EXPECT_EQ(a.registers, 168);
  EXPECT_EQ(a.smem_static_bytes, 2048);
  EXPECT_EQ(a.spill_store_bytes + a.spill_load_bytes, 12);
  EXPECT_EQ(b.registers, 40);
  EXPECT_EQ(b.smem_static_bytes, 4096);
  EXPECT_EQ(b.stack_bytes, 0);
}

TEST(CompileLog, SerializedWgmmaIsAFactAndStaysARemark) {
  const std::string remark =
      "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to insufficient "
      "register resources for the wgmma pipeline in the function 'k'\n";
  const CompileLog log = read_compile_log(remark + kSpilling13);
  EXPECT_TRUE(log.wgmma_serialized);
  EXPECT_EQ(log.remarks, remark);
  EXPECT_EQ(log.registers, 32);
}

TEST(CompileLog, InjectedWaitsAreNotSerialization) {
  const CompileLog log = read_compile_log(
      "ptxas info    : (C7517) wgmma.wait_group is injected in around line 55 by compiler to allow "
      "use of registers defined "
      "by GMMA in function 'k'\n");
  EXPECT_FALSE(log.wgmma_serialized);
  EXPECT_THAT(log.remarks, HasSubstr("C7517"));
}

TEST(CompileLog, WarningsStay) {
  const std::string warning =
      "k.cu(2): warning #177-D: variable \"unused\" was declared but never referenced\n   int "
      "unused=3; }\n       ^\n";
  const CompileLog log = read_compile_log(warning + "\n" + kSpilling13);
  EXPECT_EQ(log.remarks, warning);
}

TEST(CompileLog, EmptyLogHasNoResources) {
  const CompileLog log = read_compile_log("");
  EXPECT_FALSE(log.has_resources);
  EXPECT_EQ(log.registers, 0);
  EXPECT_EQ(log.remarks, "");
}

constexpr const char* kTwoErrors = R"(k.cu(1): error: identifier "q" is undefined
  extern "C" __global__ void k(int*p){ p = q; undefined_fn(3);
                                           ^

k.cu(1): warning #550-D: parameter "p" was set but never used
  extern "C" __global__ void k(int*p){ p = q; undefined_fn(3);
                                   ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

k.cu(7): error: identifier "undefined_fn" is undefined
  other line
  ^

2 errors detected in the compilation of "k.cu".
)";

TEST(FirstErrors, KeepsErrorsWithTheirLinesAndDropsWarnings) {
  EXPECT_EQ(first_errors(kTwoErrors, 4000),
            "k.cu(1): error: identifier \"q\" is undefined\n"
            "  extern \"C\" __global__ void k(int*p){ p = q; undefined_fn(3);\n"
            "                                           ^\n"
            "k.cu(7): error: identifier \"undefined_fn\" is undefined\n"
            "  other line\n"
            "  ^");
}

TEST(FirstErrors, StopsAtTheLimitAndNeverGivesNothing) {
  const std::string some = first_errors(kTwoErrors, 60);
  EXPECT_LE(some.size(), 60u);
  EXPECT_THAT(some, HasSubstr("identifier \"q\""));
  EXPECT_EQ(first_errors(kTwoErrors, 10), "k.cu(1): e");
  EXPECT_EQ(first_errors("something else went wrong\n", 4000), "something else went wrong");
}

TEST(FirstErrors, AssemblerAndOptionErrorsAreFound) {
  EXPECT_THAT(first_errors("ptxas application ptx input, line 37; error   : Not a name of any "
                           "known instruction: 'bogus'\n"
                           "ptxas fatal   : Ptx assembly aborted due to errors\n",
                           4000),
              HasSubstr("'bogus'"));
  EXPECT_EQ(first_errors("nvrtc: error: unrecognized option --bogus found\n", 4000),
            "nvrtc: error: unrecognized option --bogus found");
}

TEST(BuildId, FromTheHeaderOfPtx) {
  EXPECT_EQ(build_id_of_ptx(
                "//\n// Generated by NVIDIA NVVM Compiler\n//\n// Compiler Build ID: CL-36424714\n"
                "// Cuda compilation tools, release 13.0, V13.0.88\n//\n"),
            "cl-36424714");
  EXPECT_EQ(build_id_of_ptx(".version 9.0\n"), "");
}

TEST(ErrorsInCode, HaveLineColumnAndCaretOfTheText) {
  EXPECT_EQ(errors_in_code("score(2): warning #177-D: unused\n"
                           "score(2): error: identifier \"x\" is undefined\n"
                           "    s + x\n"
                           "        ^\n"
                           "          detected during instantiation of\n"
                           "mask(1): error #20-D: too few\n"
                           "            argument types are: (int)\n"
                           "  f()\n"
                           "    ^\n"
                           "score(2): error: identifier \"x\" is undefined\n"
                           "    s + x\n"
                           "        ^\n"
                           "k.cu(7): error: another\n",
                           4000),
            "score, line 2, column 7: identifier \"x\" is undefined\n    s + x\n        ^\n"
            "mask, line 1, column 3: too few\n  f()\n    ^");
  EXPECT_EQ(errors_in_code("k.cu(7): error: another\nscores(1): error: no\n", 4000), "");
  EXPECT_EQ(errors_in_code("score(1): error: no line is shown\n", 4000),
            "score, line 1: no line is shown");
}

}  // namespace
}  // namespace attnforge
