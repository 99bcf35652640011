// disassemble_test.cpp - finding and running a disassembler, with scripts in its place.
#include "runtime/compile/disassemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace attnforge {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DisassembleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "attnforge-sass-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    const char* old = std::getenv("TMPDIR");
    if (old != nullptr) old_tmpdir_ = old;
    fs::create_directory(root_ / "tmp");
    setenv("TMPDIR", (root_ / "tmp").c_str(), 1);
  }
  void TearDown() override {
    if (old_tmpdir_.empty())
      unsetenv("TMPDIR");
    else
      setenv("TMPDIR", old_tmpdir_.c_str(), 1);
    fs::remove_all(root_);
  }

  void make_tool(const std::string& name, const std::string& script) {
    std::ofstream(root_ / name) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(root_ / name, fs::perms::owner_all);
  }

  Disassembly run(double time_limit_s = 30) {
    const std::string text = "machine code";
    const Disassembly result = disassemble(
        std::as_bytes(std::span(text.data(), text.size())),
        {.folders = {"/nowhere", root_.string()}, .time_limit_s = time_limit_s});
    EXPECT_TRUE(fs::is_empty(root_ / "tmp")) << "the temporary file was left behind";
    return result;
  }

  fs::path root_;
  std::string old_tmpdir_;
};

TEST_F(DisassembleTest, ToolGetsTheCubinAsAFile) {
  make_tool("nvdisasm", "echo \"$1:\"; cat \"$2\"");
  const Disassembly result = run();
  EXPECT_EQ(result.problem, "");
  EXPECT_EQ(result.text, "--print-code:\nmachine code");
  EXPECT_EQ(result.tool, (root_ / "nvdisasm").string());
}

TEST_F(DisassembleTest, LinesOfTheSourceAreAskedForWhereTheToolKnowsThem) {
  make_tool("nvdisasm", "[ $# = 3 ] && [ \"$2\" = --print-line-info-inline ] && echo lines");
  make_tool("cuobjdump", "[ $# = 2 ] && echo \"$1\"");
  const DisassembleOptions options{.folders = {root_.string()}, .line_info = true};
  EXPECT_EQ(disassemble({}, options).text, "lines\n");
  fs::remove(root_ / "nvdisasm");
  EXPECT_EQ(disassemble({}, options).text, "--dump-sass\n");
}

TEST_F(DisassembleTest, LongOutputIsReadWhole) {
  make_tool("nvdisasm",
            "i=0; while [ $i -lt 20000 ]; do echo 'IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]'; "
            "i=$((i+1)); done");
  EXPECT_EQ(run().text.size(), 20000u * 38u);
}

TEST_F(DisassembleTest, SecondToolIsUsedWhenTheFirstFails) {
  make_tool("nvdisasm", "echo 'unknown arch' >&2; exit 3");
  make_tool("cuobjdump", "echo \"$1\"");
  EXPECT_EQ(run().text, "--dump-sass\n");
}

TEST_F(DisassembleTest, FailureSaysWhatTheToolSaid) {
  make_tool("nvdisasm", "echo 'unknown arch' >&2; exit 3");
  const Disassembly result = run();
  EXPECT_EQ(result.text, "");
  EXPECT_THAT(result.problem,
              AllOf(HasSubstr("nvdisasm failed (exit status 3)"), HasSubstr("unknown arch")));
}

TEST_F(DisassembleTest, HangingToolIsStoppedWithItsChildren) {
  make_tool("nvdisasm", "sleep 600");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(run(0.2).problem, HasSubstr("did not end within 0.2 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(DisassembleTest, SilentAndUnstartableToolsAreReported) {
  make_tool("nvdisasm", "exit 0");
  std::ofstream(root_ / "cuobjdump") << "#!/nowhere/interpreter\n";
  fs::permissions(root_ / "cuobjdump", fs::perms::owner_all);
  EXPECT_THAT(run().problem, AllOf(HasSubstr("nvdisasm printed nothing"),
                                   HasSubstr("cuobjdump could not be started")));
}

TEST_F(DisassembleTest, NoToolSaysWhatToInstall) {
  EXPECT_THAT(run().problem, AllOf(HasSubstr("no disassembler"), HasSubstr("nvdisasm")));
}

TEST_F(DisassembleTest, UnwritableFolderIsReported) {
  setenv("TMPDIR", "/nowhere", 1);
  const Disassembly result = disassemble({}, {.folders = {root_.string()}});
  EXPECT_THAT(result.problem, AllOf(HasSubstr("cannot create /nowhere/"), HasSubstr("TMPDIR")));
}

}  // namespace
}  // namespace attnforge
