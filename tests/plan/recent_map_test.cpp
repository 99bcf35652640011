// recent_map_test.cpp - a map that stays at its size and keeps what is in use.
#include "plan/recent_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace attnforge {
namespace {

struct Numbered {
  int key, number;
};
struct KeyOfNumbered {
  int operator()(const Numbered& value) const { return value.key; }
};

/// With a hash that several keys share.
struct Map : RecentMap<Numbered, KeyOfNumbered> {
  using RecentMap::RecentMap;
  static std::size_t hash(int key) { return static_cast<std::size_t>(key / 3); }
  std::shared_ptr<const Numbered> find(int key) const { return RecentMap::find(key, hash(key)); }
  std::shared_ptr<const Numbered> put(int key, int number) {
    return RecentMap::put(std::make_shared<const Numbered>(Numbered{key, number}), hash(key));
  }
};

TEST(RecentMap, FindsWhatWasPutAndReplaces) {
  Map map(4);
  EXPECT_EQ(map.find(1), nullptr);
  EXPECT_EQ(map.put(1, 10)->number, 10);
  const std::shared_ptr<const Numbered> first = map.find(1);
  ASSERT_NE(first, nullptr);
  map.put(1, 11);
  EXPECT_EQ(map.find(1)->number, 11);
  EXPECT_EQ(first->number, 10) << "who holds a value keeps it";
  EXPECT_EQ(map.size(), 1u);
}

TEST(RecentMap, StaysAtItsLimitAndForgetsWhatIsNotLookedUp) {
  Map map(100);
  for (int key = 0; key < 10000; ++key) {
    map.put(key, key);
    ASSERT_LE(map.size(), 100u);
    for (int hot = 0; hot < 10; ++hot) {
      if (hot <= key) {
        ASSERT_NE(map.find(hot), nullptr) << hot << " after " << key;
      }
    }
  }
  EXPECT_EQ(map.size(), 100u);
  EXPECT_EQ(map.find(9999)->number, 9999);
  EXPECT_EQ(map.find(5000), nullptr);
}

TEST(RecentMap, FreesWhatItForgets) {
  Map map(10);
  const std::weak_ptr<const Numbered> forgotten = map.put(0, 0);
  const std::shared_ptr<const Numbered> held = map.put(1, 1);
  EXPECT_FALSE(forgotten.expired());
  for (int key = 2; key < 30; ++key) map.put(key, key);
  EXPECT_TRUE(forgotten.expired());
  EXPECT_EQ(map.find(1), nullptr);
  EXPECT_EQ(held->number, 1);
}

TEST(RecentMap, ThreadsLookUpWhileOthersPut) {
  Map map(16);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 20000; ++i) {
        const int key = (i * 7 + thread) % 64;
        if (i % 3 == 0) map.put(key, key);
        const std::shared_ptr<const Numbered> found = map.find(key);
        if (found != nullptr) {
          ASSERT_EQ(found->number, key);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(map.size(), 16u);
}

}  // namespace
}  // namespace attnforge
