// c_struct_test.cpp - structs of the C API that have grown, read for callers of every version.
#include "plan/c/struct.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace attnforge {
namespace {

struct Grown {
  std::uint32_t struct_size;
  std::int32_t first;
  std::int64_t later;
};
constexpr Grown kDefaults = {sizeof(Grown), 1, 77};
constexpr std::size_t kFirstVersion = offsetof(Grown, later);

TEST(CStruct, WhatAnOlderCallerDoesNotHaveIsTheDefaultAndIsNotTouched) {
  // 99 lies beyond what the caller says is there. Two, for compilers that see a longer one zeroed.
  Grown callers[2] = {{kFirstVersion, 5, 99}, {}};
  Grown& older = callers[0];
  const Grown read = read_struct(&older, kDefaults, "grown", kFirstVersion);
  EXPECT_EQ(read.first, 5);
  EXPECT_EQ(read.later, 77);
  write_struct(&older, {.struct_size = sizeof(Grown), .first = 6, .later = 55});
  EXPECT_EQ(older.struct_size, kFirstVersion);
  EXPECT_EQ(older.first, 6);
  EXPECT_EQ(older.later, 99);
}

TEST(CStruct, BelowTheFirstVersionOrNullIsRefusedByName) {
  const Grown older = {kFirstVersion - 1, 5, 0};
  for (const Grown* given : {&older, static_cast<const Grown*>(nullptr)}) {
    try {
      read_struct(given, kDefaults, "grown", kFirstVersion);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("grown"), std::string::npos) << error.what();
    }
  }
}

TEST(CStruct, WhatANewerCallerHasMustBeZero) {
  struct {
    Grown known;
    std::int64_t newest;
  } newer = {{sizeof(newer), 5, 6}, 0};
  EXPECT_EQ(read_struct(&newer.known, kDefaults, "grown").later, 6);
  newer.newest = 1;
  EXPECT_THROW(read_struct(&newer.known, kDefaults, "grown"), Error);
  write_struct(&newer.known, {.struct_size = sizeof(Grown), .first = 7, .later = 8});
  EXPECT_EQ(newer.newest, 0);
  EXPECT_EQ(newer.known.struct_size, sizeof(newer));
}

}  // namespace
}  // namespace attnforge
