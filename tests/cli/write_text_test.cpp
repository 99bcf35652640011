// write_text_test.cpp - files are whole or as they were; links and devices stay what they are.
#include "cli/files/text_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "attnforge/error.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

namespace fs = std::filesystem;

TEST(WriteText, ReplacesAFileAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.write("page.html", "a longer text than the new one");
  write_text(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
}

TEST(WriteText, WritesThroughLinks) {
  const TemporaryFolder folder;
  const std::string target = folder.write("target", "old"), link = folder.file("link");
  const std::string null = folder.file("null");
  fs::create_symlink(target, link);
  fs::create_symlink("/dev/null", null);
  write_text(link, "new");
  write_text(null, "new");
  EXPECT_EQ(read_file(target), "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_symlink(null)) << "--html /dev/null would have replaced the device";
}

TEST(WriteText, AFullDeviceIsAnError) {
  const TemporaryFolder folder;
  const std::string full = folder.file("full");
  fs::create_symlink("/dev/full", full);
  try {
    write_text(full, "new");
    FAIL() << "nothing was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot be written: No space left on device"));
  }
}

}  // namespace
}  // namespace attnforge::cli
