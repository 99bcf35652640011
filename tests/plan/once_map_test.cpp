// once_map_test.cpp - values are made once however many threads ask, and failures are not
// remembered.
#include "plan/once_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

namespace attnforge {
namespace {

struct Value {
  int number = 0;
};
using Map = OnceMap<std::string, Value, std::hash<std::string>>;

std::unique_ptr<Value> value(int number) { return std::make_unique<Value>(Value{number}); }
constexpr auto kAny = [](const Value&) { return true; };

TEST(OnceMap, FindsWhatWasPut) {
  Map map;
  EXPECT_EQ(map.find("a"), nullptr);
  map.put("a", value(1));
  ASSERT_NE(map.find("a"), nullptr);
  EXPECT_EQ(map.find("a")->number, 1);
  EXPECT_EQ(map.find("b"), nullptr);
}

TEST(OnceMap, ReplacedAndForgottenValuesStayAlive) {
  Map map;
  const Value& first = map.put("a", value(1));
  const Value& second = map.put("a", value(2));
  EXPECT_EQ(map.find("a"), &second);
  EXPECT_EQ(first.number, 1);
  map.forget_if([](const std::string& key, Value&) { return key == "a"; });
  EXPECT_EQ(map.find("a"), nullptr);
  EXPECT_EQ(second.number, 2);
}

TEST(OnceMap, ManyThreadsMakeAValueOnce) {
  constexpr int kThreads = 16;
  for (int round = 0; round < 50; ++round) {
    Map map;
    std::atomic<int> made = 0;
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    std::vector<const Value*> got(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        got[i] = &map.find_or_make("key", kAny, [&] {
          ++made;
          std::this_thread::yield();
          return value(7);
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    for (const Value* each : got) EXPECT_EQ(each, got[0]);
  }
}

TEST(OnceMap, KeysAreMadeIndependently) {
  Map map;
  // Making "a" asks for "b": a map that held its lock while making would never end.
  const Value& a = map.find_or_make("a", kAny, [&] {
    return value(1 + map.find_or_make("b", kAny, [] { return value(10); }).number);
  });
  EXPECT_EQ(a.number, 11);
}

TEST(OnceMap, FailureReachesItsCallerAndAnotherThreadTriesAgain) {
  Map map;
  std::atomic<int> attempts = 0;
  std::atomic<int> failures = 0;
  std::latch start(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      try {
        map.find_or_make("key", kAny, [&] {
          if (++attempts <= 3) throw std::runtime_error("not yet");
          return value(4);
        });
      } catch (const std::runtime_error&) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(attempts, 4);
  EXPECT_EQ(failures, 3);
  EXPECT_EQ(map.find("key")->number, 4);
}

TEST(OnceMap, ValueThatIsNotAcceptableIsMadeAgain) {
  Map map;
  map.put("key", value(1));
  const auto at_least_2 = [](const Value& each) { return each.number >= 2; };
  EXPECT_EQ(map.find_or_make("key", at_least_2, [] { return value(2); }).number, 2);
  EXPECT_EQ(map.find_or_make("key", at_least_2, [] { return value(3); }).number, 2);
}

}  // namespace
}  // namespace attnforge
