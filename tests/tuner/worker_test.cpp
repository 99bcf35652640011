// worker_test.cpp - messages, processes and compiles of workers, without a GPU.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "tests/support/error_of.h"
#include "tests/support/program_beside.h"
#include "tuner/worker/channel.h"
#include "tuner/worker/compile_workers.h"
#include "tuner/worker/serve.h"

namespace attnforge {
namespace {

using ::testing::HasSubstr;

const WorkerProgram kProgram = {test::program_beside("faulty_worker"), "faulty"};

struct Pair {
  Channel ours, theirs;
  int raw = -1;  // of theirs
  Pair() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("no sockets");
    ours = Channel(ends[0]);
    theirs = Channel(raw = ends[1]);
  }
};

TEST(Channel, MessagesArriveWholeAndInOrder) {
  Pair pair;
  const Message first = {"load", "", std::string("a\0b\n", 4)},
                large = {"code", std::string(3 << 20, 'x')};
  std::thread sender([&] {
    EXPECT_TRUE(pair.theirs.send(first, 5));
    EXPECT_TRUE(pair.theirs.send(large, 5));
  });
  Message got;
  ASSERT_EQ(pair.ours.receive(got, 5), Channel::Got::kMessage);
  EXPECT_EQ(got, first);
  ASSERT_EQ(pair.ours.receive(got, 5), Channel::Got::kMessage);
  EXPECT_EQ(got, large);
  sender.join();
  EXPECT_EQ(pair.ours.receive(got, 0.01), Channel::Got::kNothing);
  pair.theirs.close();
  EXPECT_EQ(pair.ours.receive(got, 5), Channel::Got::kGone);
  EXPECT_FALSE(pair.ours.send(first, 5));
}

TEST(Channel, WhatIsNoMessageEndsIt) {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff", 4), std::string("\1\0\0\0\xff\xff\xff\xff", 8),
        std::string(4, '\0')}) {
    Pair pair;
    ASSERT_EQ(write(pair.raw, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    Message got;
    EXPECT_EQ(pair.ours.receive(got, 5), Channel::Got::kGone);
  }
}

TEST(Channel, OneThatNobodyReadsIsGivenUp) {
  Pair pair;
  EXPECT_FALSE(pair.ours.send({std::string(16 << 20, 'x')}, 0.1));
}

TEST(Channel, MeasurementsComeBackAsTheyWere) {
  const Measurement sent{.status = Status::kWrongResult,
                         .time_us = 1.0 / 3,
                         .noise = 0.1,
                         .samples = 7,
                         .max_error = 1e-9,
                         .clock_mhz = 1980,
                         .detail = "a\nb"};
  Message message = {"done"};
  append(message, sent);
  const Measurement got = measurement_at(message, 1);
  EXPECT_EQ(got.status, sent.status);
  EXPECT_EQ(got.time_us, sent.time_us);
  EXPECT_EQ(got.samples, sent.samples);
  EXPECT_EQ(got.max_error, sent.max_error);
  EXPECT_EQ(got.detail, sent.detail);
}

// Another message, or another answer to one, takes another number: a supervisor of one build and a
// worker of another would not see that they differ.
TEST(Protocol, IsOfTheseMessages) {
  ASSERT_EQ(kWorkerProtocol, 2);
  DeviceFacts device = typical_device("90a");
  device.ordinal = 3;
  device.uuid = "uuid";
  device.arch.smem_per_block_bytes = 1000;
  const Problem problem = parse_problem("fwd bf16 seqlen=128 head_dim=64"),
                asked = parse_problem("fwd bf16 seqlen=100 head_dim=64");
  const Config config = parse_config("fake block_m=64");
  Compiled compiled;
  compiled.source.name = "kernel";
  compiled.source.renamed = {{"own", "now"}};
  using ::testing::ElementsAre;
  EXPECT_THAT(begin_request("build", problem, device, {.seed = 7, .hang_least_s = 2}),
              ElementsAre("begin", "build", to_string(problem), "3", "uuid", "1000", "7", "2", ""));
  EXPECT_EQ(begin_request("build", problem, device, {.asked = asked}).back(), to_string(asked));
  EXPECT_THAT(load_request({nullptr, config, 5}, compiled, 6),
              ElementsAre("load", "fake block_m=64", "5", "6", "", "kernel", "own", "now"));
  EXPECT_THAT(request("sample asked", std::span(&config, 1)),
              ElementsAre("sample asked", "fake block_m=64"));
}

/// glibc's sources of locales make one, where no such locale is installed, once for a build folder.
TEST(Channel, NumbersAreReadTheSameInAnyLocale) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(ATTNFORGE_COMPILED).parent_path() / "locales";
  const std::string locale = folder / "de_DE.UTF-8", part = locale + std::to_string(getpid());
  fs::create_directories(folder);
  const std::string make = "localedef -i de_DE -f UTF-8 '" + part + "' > /dev/null 2>&1";
  if (!fs::exists(locale) && std::system(make.c_str()) == 0) fs::rename(part, locale);
  const bool made = fs::exists(locale);
  if (made) setenv("LOCPATH", folder.c_str(), 1);
  const bool set = setlocale(LC_NUMERIC, "de_DE.UTF-8") != nullptr;
  const double number = number_of(text_of(1.5)), small = number_of(text_of(1e-9));
  const bool comma = *localeconv()->decimal_point == ',';
  setlocale(LC_NUMERIC, "C");
  if (made) unsetenv("LOCPATH");
  if (!set || !comma) GTEST_SKIP() << "no locale with a decimal comma";
  EXPECT_EQ(number, 1.5);
  EXPECT_EQ(small, 1e-9);
}

// ---- Compiles, by a real NVRTC ----

Source source_of(const std::string& text) {
  Source source;
  source.name = "kernel";
  source.entry = source.text = text;
  return source;
}

class CompileWorkersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  }
  /// Exponentially many templates: minutes, and tens of GB.
  const Source slow = source_of(
      "template <unsigned long long N, int D> struct Slow {\n"
      "  static constexpr int value = Slow<2 * N, D - 1>::value + Slow<2 * N + 1, D - 1>::value;\n"
      "};\n"
      "template <unsigned long long N> struct Slow<N, 0> { static constexpr int value = 1; };\n"
      "extern \"C\" __global__ void kernel(int* p) { *p = Slow<1, 26>::value; }\n");
  const Source good = source_of("extern \"C\" __global__ void kernel(int* p) { *p = 1; }\n");
  const Arch& arch = typical_device("90a").arch;
  const std::atomic<bool> wanted = false;
};

TEST_F(CompileWorkersTest, GiveTheCodeThatACompileGivesHere) {
  CompileWorkers workers(kProgram);
  const Cubin here = compile(good, arch), there = workers.compile(good, arch, wanted);
  EXPECT_EQ(there.bytes, here.bytes);
  EXPECT_EQ(there.registers, here.registers);
  EXPECT_EQ(there.nvrtc, here.nvrtc);
  EXPECT_EQ(there.arch, here.arch);
  EXPECT_EQ(there.source_digest, here.source_digest);
}

TEST_F(CompileWorkersTest, AnErrorIsThatOfTheCompiler) {
  CompileWorkers workers(kProgram);
  const Error error = error_of([&] { workers.compile(source_of("no C++;\n"), arch, wanted); });
  EXPECT_EQ(error.code(), ErrorCode::kCompile);
  EXPECT_THAT(error.what(), HasSubstr("error"));
}

TEST_F(CompileWorkersTest, OneWithoutEndIsEnded) {
  CompileWorkers workers(kProgram, 1);
  const Error error = error_of([&] { workers.compile(slow, arch, wanted); });
  EXPECT_EQ(error.code(), ErrorCode::kCompile);
  EXPECT_THAT(error.what(), HasSubstr("no end after 1 s"));
  EXPECT_GT(workers.compile(good, arch, wanted).bytes.size(), 100u) << "by another worker";
}

TEST_F(CompileWorkersTest, OneThatNobodyWantsIsEndedAtOnce) {
  CompileWorkers workers(kProgram);
  std::atomic<bool> unwanted = false;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    unwanted = true;
  });
  const auto start = std::chrono::steady_clock::now();
  const Error error = error_of([&] { workers.compile(slow, arch, unwanted); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  later.join();
  EXPECT_THAT(error.what(), HasSubstr("not wanted"));
  EXPECT_LT(took.count(), 2);
}

TEST(Workers, AProgramThatIsNoneIsAnError) {
  const std::atomic<bool> wanted = false;
  const Arch& arch = typical_device("90a").arch;
  CompileWorkers absent({"/nowhere/attnforge", "faulty"});
  EXPECT_EQ(error_of([&] { absent.compile(source_of("int a;\n"), arch, wanted); }).code(),
            ErrorCode::kIo);
  CompileWorkers mute({"/bin/true", "faulty"});
  EXPECT_THAT(error_of([&] { mute.compile(source_of("int a;\n"), arch, wanted); }).what(),
              HasSubstr("ended with code 0"));
  CompileWorkers stranger({kProgram.path, "another build"});
  EXPECT_THAT(error_of([&] { stranger.compile(source_of("int a;\n"), arch, wanted); }).what(),
              HasSubstr("of another build"));
}

/// Descriptors of a process, by what they lead to.
std::vector<std::string> descriptors(pid_t pid) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error))
    found.push_back(std::filesystem::read_symlink(entry.path(), error).string());
  return found;
}

/// Workers of this process that live.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::ifstream list("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (pid_t pid = 0; list >> pid;) found.push_back(pid);
  return found;
}

TEST(Workers, HaveNoDescriptorsOfTheirSupervisor) {
  const std::string path = ::testing::TempDir() + "attnforge_worker_test_open_file";
  std::ofstream file(path);  // of a caller's that has no close-on-exec
  const int inherited = open(path.c_str(), O_RDONLY);
  ASSERT_GE(inherited, 0);
  {
    WorkerProcess worker(kProgram, WorkerRole::kGpu);
    Message answer;
    worker.channel().send({"nothing"}, 5);
    ASSERT_EQ(worker.channel().receive(answer, 20), Channel::Got::kMessage) << "it is at work";
    ASSERT_EQ(children().size(), 1u);
    for (const std::string& each : descriptors(children().front()))
      EXPECT_EQ(each.find("open_file"), std::string::npos);
  }
  EXPECT_TRUE(children().empty());
  close(inherited);
  std::filesystem::remove(path);
}

TEST(Workers, WhoseEndIsNotKnownAreNotSaidToHaveEndedWell) {
  const auto before = signal(SIGCHLD, SIG_IGN);  // as some servers have it
  WorkerProcess worker({"/bin/false", ""}, WorkerRole::kCompile);
  Message answer;
  EXPECT_EQ(worker.channel().receive(answer, 20), Channel::Got::kGone);
  const std::string end = worker.end();
  signal(SIGCHLD, before);
  EXPECT_THAT(end, HasSubstr("who has waited for it knows how"));
}

/// Also one that is at work, when its supervisor is killed; also where a child of that, which was
/// forked meanwhile, still has the supervisor's ends of the sockets.
TEST(Workers, EndWithTheirSupervisor) {
  int numbers[2], sockets_of_child[2];
  ASSERT_EQ(pipe(numbers), 0);
  ASSERT_EQ(pipe(sockets_of_child), 0);  // its child lives until this is closed
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    WorkerProcess gpu(kProgram, WorkerRole::kGpu), compiler(kProgram, WorkerRole::kCompile);
    const std::vector<pid_t> both = children();
    if (fork() == 0) {
      close(sockets_of_child[1]);
      char byte;
      _exit(read(sockets_of_child[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(sockets_of_child[1]);
    if (write(numbers[1], both.data(), both.size() * sizeof(pid_t)) < 0) _exit(1);
    pause();
    _exit(0);
  }
  pid_t workers[2] = {0, 0};
  ASSERT_EQ(read(numbers[0], workers, sizeof workers), static_cast<ssize_t>(sizeof workers));
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  for (const pid_t worker : workers) {
    for (int tries = 0; tries < 300 && kill(worker, 0) == 0; ++tries) {
      std::ifstream stat("/proc/" + std::to_string(worker) + "/stat");
      std::string word;
      if (stat >> word >> word >> word && word == "Z") break;  // nobody waits for it here
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::ifstream stat("/proc/" + std::to_string(worker) + "/stat");
    std::string word;
    EXPECT_TRUE(!(stat >> word >> word >> word) || word == "Z") << word;
  }
  for (const int end : {numbers[0], numbers[1], sockets_of_child[0], sockets_of_child[1]})
    close(end);
}

}  // namespace
}  // namespace attnforge
