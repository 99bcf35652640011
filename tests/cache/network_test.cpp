// network_test.cpp - a database where several machines write is read and not written. The file
// system is the test's own: statfs() of this program says what a test wants.
#include "cache/file/network.h"

#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "support.h"

namespace {
std::uint32_t made_up_type = 0;  // 0: the machine's own
}  // namespace

extern "C" int statfs(const char* path, struct statfs* facts) noexcept {
  const long failed = syscall(SYS_statfs, path, facts);
  if (failed == 0 && made_up_type != 0) facts->f_type = made_up_type;
  return static_cast<int>(failed);
}

namespace attnforge::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kNfs = 0x6969, kFuse = 0x65735546, kExt4 = 0xEF53;

class NetworkTest : public CacheTest {
 protected:
  void TearDown() override {
    made_up_type = 0;
    CacheTest::TearDown();
  }
  const ::testing::Matcher<const std::string&> advice_ = AllOf(
      HasSubstr("NFS"), HasSubstr("ATTNFORGE_CACHE to a file on a local disk"),
      HasSubstr("ATTNFORGE_SITE_CACHE"));
};

TEST(SharedFileSystem, IsOneOfSeveralMachines) {
  EXPECT_EQ(shared_file_system(kNfs, ""), "NFS");
  EXPECT_EQ(shared_file_system(0x0BD00BD0, ""), "Lustre");
  EXPECT_EQ(shared_file_system(0x47504653, ""), "GPFS");
  EXPECT_EQ(shared_file_system(0xFF534D42, ""), "CIFS");
  EXPECT_EQ(shared_file_system(kExt4, "/dev/sda1"), "");
  EXPECT_EQ(shared_file_system(kFuse, "me@host:/home"), "FUSE");
  EXPECT_EQ(shared_file_system(kFuse, "fuse-overlayfs"), "");
  EXPECT_EQ(shared_file_system(0x01021997, "host:/x"), "") << "9P";
}

TEST(MountSource, IsOfTheInnermostMount) {
  constexpr const char* kText =
      "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "2 1 0:40 / /mnt rw shared:7 - fuse.sshfs host:/a rw\n"
      "3 2 0:41 / /mnt/a\\040b rw - fuse.x other:/b rw\n"
      "broken\n";
  EXPECT_EQ(mount_source(kText, "/mnt/c"), "host:/a");
  EXPECT_EQ(mount_source(kText, "/mnt/a b/c"), "other:/b");
  EXPECT_EQ(mount_source(kText, "/mnt2"), "/dev/sda1");
  EXPECT_EQ(mount_source("", "/"), "");
  EXPECT_EQ(mount_source("1 0 0:1 / /a rw - fuse host:\\x\\09 rw\n", "/a"), "host:\\x\\09")
      << "a kernel that leaves backslashes as they are";
}

TEST_F(NetworkTest, ADatabaseThatIsThereIsReadAndNotWritten) {
  Cache(path()).put({good_try(1, 10)});
  made_up_type = kNfs;
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), path());
  EXPECT_THAT(messages_, Contains(advice_));
  EXPECT_THAT(cache.not_kept(), advice_);
  cache.put({good_try(2, 5)});
  EXPECT_EQ(cache_list(path()).at(0).tries, 1);
  std::stringstream nothing;
  try {
    cache_import(path(), nothing);
    ADD_FAILURE() << "an import writes";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("nothing was imported"));
  }
  messages_.clear();
  Cache site(path(), /*read_only=*/true, log());
  EXPECT_THAT(messages_, IsEmpty()) << "to read is what it is for";
}

TEST_F(NetworkTest, NoneIsMadeThere) {
  made_up_type = kNfs;
  EXPECT_THAT(cache_objection(path()), advice_);
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, Contains(advice_));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(NetworkTest, WhoTrustsAnyWritesIt) {
  made_up_type = kNfs;
  setenv("ATTNFORGE_CACHE_TRUST", "any", 1);
  Cache cache(path(), false, log());
  unsetenv("ATTNFORGE_CACHE_TRUST");
  EXPECT_EQ(cache.not_kept(), "");
}

}  // namespace
}  // namespace attnforge::testing
