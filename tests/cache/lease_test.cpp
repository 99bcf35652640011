// lease_test.cpp - one process tunes a problem at a time.
#include <signal.h>
#include <unistd.h>

#include "cache/file/process.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::IsEmpty;

class LeaseTest : public CacheTest {
 protected:
  LeaseTest() : cache_(path(), false, log()) {}
  Cache cache_;
};

TEST_F(LeaseTest, OneHolderAtATime) {
  Cache other(path());
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
  EXPECT_FALSE(other.acquire_lease(kProblem, kH200, 60));
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60)) << "the holder renews";
  cache_.release_lease(kProblem, kH200);
  EXPECT_TRUE(other.acquire_lease(kProblem, kH200, 60));
  EXPECT_FALSE(cache_.acquire_lease(kProblem, kH200, 60));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(LeaseTest, OtherProblemsAndGpusAreFree) {
  Cache other(path());
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
  EXPECT_TRUE(other.acquire_lease(kProblem, kA10, 60));
  EXPECT_TRUE(other.acquire_lease("another problem", kH200, 60));
}

TEST_F(LeaseTest, OnlyTheHolderReleases) {
  Cache other(path());
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
  other.release_lease(kProblem, kH200);
  EXPECT_FALSE(other.acquire_lease(kProblem, kH200, 60));
}

TEST_F(LeaseTest, ExpiredIsFree) {
  Cache other(path());
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
  raw().execute("UPDATE leases SET expires_at = expires_at - 61");
  EXPECT_TRUE(other.acquire_lease(kProblem, kH200, 60));
  EXPECT_FALSE(cache_.acquire_lease(kProblem, kH200, 60)) << "who lost it does not renew it";
}

TEST_F(LeaseTest, AnExpiryOfAWrongClockIsFree) {
  Cache other(path());
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
  raw().execute("UPDATE leases SET expires_at = expires_at + 10 * 24 * 3600");
  EXPECT_TRUE(other.acquire_lease(kProblem, kH200, 60));
}

TEST_F(LeaseTest, ClosingTheCacheReleases) {
  {
    Cache holder(path());
    EXPECT_TRUE(holder.acquire_lease(kProblem, kH200, 60));
    EXPECT_FALSE(cache_.acquire_lease(kProblem, kH200, 60));
  }
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
}

TEST_F(LeaseTest, ALivingProcessKeepsItAndAKilledOneLosesItAtOnce) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = start_child([&] {
    Cache holder(path());
    const char said = holder.acquire_lease(kProblem, kH200, 3600) ? 'y' : 'n';
    if (write(ready[1], &said, 1) != 1) return false;
    pause();
    return true;
  });
  char said = 0;
  ASSERT_EQ(read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  EXPECT_FALSE(cache_.acquire_lease(kProblem, kH200, 60));
  kill(child, SIGKILL);
  // Until it is waited for the child is a zombie, whose pid still exists.
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
  EXPECT_EQ(wait_for(child), 128 + SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(LeaseTest, AReusedPidIsNotTheOwner) {
  Cache other(path());
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 3600));
  raw().execute("UPDATE leases SET pid_start = pid_start - 1");
  EXPECT_TRUE(other.acquire_lease(kProblem, kH200, 60));
}

struct Elsewhere {
  const char* name;
  const char* sql;
};
void PrintTo(const Elsewhere& where, std::ostream* out) { *out << where.name; }
class ElsewhereTest : public LeaseTest, public ::testing::WithParamInterface<Elsewhere> {};

TEST_P(ElsewhereTest, NothingIsKnownOfItsOwner) {
  Cache other(path());
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 3600));
  // A pid that runs nowhere: here it would be dead.
  raw().execute("UPDATE leases SET pid = 99999999, pid_start = 1");
  raw().execute(GetParam().sql);
  EXPECT_FALSE(other.acquire_lease(kProblem, kH200, 60));
}

INSTANTIATE_TEST_SUITE_P(
    Lease, ElsewhereTest,
    ::testing::Values(Elsewhere{"another_machine_or_boot", "UPDATE leases SET boot_id = 'x'"},
                      Elsewhere{"another_container", "UPDATE leases SET pid_namespace = 'x'"},
                      Elsewhere{"unknown_boot", "UPDATE leases SET boot_id = ''"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(LeaseTest, ManyProcessesAskAndOneGetsIt) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i)
    children.push_back(start_child([&] {
      close(ready[0]);
      Cache mine(path());
      const char said = mine.acquire_lease(kProblem, kH200, 3600) ? 'y' : 'n';
      if (write(ready[1], &said, 1) != 1) return false;
      pause();
      return true;
    }));
  std::string said;
  for (char answer; said.size() < children.size() && read(ready[0], &answer, 1) == 1;)
    said += answer;
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    wait_for(child);
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), 'y'), 1) << said;
  EXPECT_EQ(said.size(), children.size());
  close(ready[0]);
  close(ready[1]);
}

TEST_F(LeaseTest, WithoutAWritableDatabaseThereIsNobodyToWaitFor) {
  EXPECT_TRUE(cache_.acquire_lease(kProblem, kH200, 60));
  cache_.release_lease(kProblem, kH200);
  Cache reader(path(), true);
  EXPECT_TRUE(reader.acquire_lease(kProblem, kH200, 60));
  Cache memory(":memory:");
  EXPECT_TRUE(memory.acquire_lease(kProblem, kH200, 60));
}

TEST(ThisProcess, IsNamedAndAlive) {
  const ProcessName self = this_process();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_NE(self.boot_id, "");
  EXPECT_NE(self.pid_namespace, "");
  EXPECT_GT(self.start, 0);
  EXPECT_FALSE(is_dead(self));
  EXPECT_NE(random_name(), random_name());
}

}  // namespace
}  // namespace attnforge::testing
