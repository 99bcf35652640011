// config_test.cpp - configs as text, as typed structs and as initialisers.
#include "generator/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

using testing::HasSubstr;

Config arbitrary_config() {
  const auto name = rc::gen::nonEmpty(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("abz_019"))));
  Config config{std::string("f").append(*name), {}};
  for (const std::string& field : *rc::gen::container<std::set<std::string>>(name)) {
    config.fields.emplace_back(std::string("x").append(field), *rc::gen::arbitrary<int>());
  }
  return config;
}

TEST(Config, TextIsFamilyThenFields) {
  const Config config{"fwd_mine", {{"head_dim", 128}, {"offset", -3}}};
  EXPECT_EQ(to_string(config), "fwd_mine head_dim=128 offset=-3");
  EXPECT_EQ(parse_config("  fwd_mine\thead_dim=128  offset=-3 "), config);
  EXPECT_EQ(parse_config("fwd_mine"), (Config{"fwd_mine", {}}));
}

RC_GTEST_PROP(Config, ParsingWhatWasWrittenGivesTheSameConfig, ()) {
  const Config config = arbitrary_config();
  RC_ASSERT(parse_config(to_string(config)) == config);
}

RC_GTEST_PROP(Config, NoTextDoesAnythingButParseOrBeRefused, (const std::string& text)) {
  try {
    parse_config(text);
  } catch (const Error& error) {
    RC_ASSERT(error.code() == ErrorCode::kInvalidArgument);
  }
}

TEST(Config, ErrorsNameTheWord) {
  const auto message = [](std::string_view text) {
    return error_message(ErrorCode::kInvalidArgument, [&] { parse_config(text); });
  };
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("block_m=4"), HasSubstr("\"block_m=4\" must be the name of a family"));
  EXPECT_THAT(message("fwd-mine"), HasSubstr("\"fwd-mine\""));
  EXPECT_THAT(message("fwd_mine block_m"), HasSubstr("\"block_m\" must be name=number"));
  EXPECT_THAT(message("fwd_mine =4"), HasSubstr("\"=4\""));
  EXPECT_THAT(message("fwd_mine 1a=4"), HasSubstr("\"1a=4\""));
  EXPECT_THAT(message("fwd_mine block_m=big"), HasSubstr("\"big\" must be a whole number"));
  EXPECT_THAT(message("fwd_mine block_m="), HasSubstr("\"block_m=\""));
  EXPECT_THAT(message("fwd_mine block_m=3000000000"), HasSubstr("\"3000000000\""));
  EXPECT_THAT(message("fwd_mine a=1 b=2 a=1"), HasSubstr("\"a=1\" gives a again"));
}

TEST(Config, GetFindsAFieldOrNamesIt) {
  const Config config{"fwd_mine", {{"block_m", 128}, {"block_n", 64}}};
  EXPECT_EQ(config.get("block_n"), 64);
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { config.get("stages"); }),
              HasSubstr("\"fwd_mine block_m=128 block_n=64\" has no field stages"));
}

struct Mine {
  int block_m;
  int block_n;
};
constexpr Field<Mine> kMineFields[] = {{"block_m", &Mine::block_m}, {"block_n", &Mine::block_n}};

TEST(Config, TypedAndUntypedAreInverse) {
  const Config config = untyped("fwd_mine", Mine{.block_m = 128, .block_n = 64}, kMineFields);
  EXPECT_EQ(to_string(config), "fwd_mine block_m=128 block_n=64");
  const Mine mine = typed<kMineFields>(parse_config("fwd_mine block_n=64 block_m=128"));
  EXPECT_EQ(mine.block_m, 128);
  EXPECT_EQ(mine.block_n, 64);
}

TEST(Config, TypedRefusesMissingAndExtraFields) {
  const auto message = [](std::string_view text) {
    return error_message(ErrorCode::kInvalidArgument,
                         [&] { typed<kMineFields>(parse_config(text)); });
  };
  EXPECT_THAT(message("fwd_mine block_m=1"), HasSubstr("has 1 fields where fwd_mine has 2"));
  EXPECT_THAT(message("fwd_mine block_m=1 block_n=1 stages=2"), HasSubstr("has 3 fields"));
  EXPECT_THAT(message("fwd_mine block_m=1 stages=2"), HasSubstr("has no field block_n"));
}

TEST(Config, AllowedValuesAreThoseOfTheirText) {
  const auto values = [](const Allowed& allowed) {
    std::vector<int> found;
    for (int value = -300; value <= 300; ++value) {
      if (allowed.has(value)) found.push_back(value);
    }
    return found;
  };
  EXPECT_THAT(values(doubled(2, 16)), testing::ElementsAre(2, 4, 8, 16));
  EXPECT_EQ(to_string(doubled(2, 16)), "2, 4, 8 or 16");
  EXPECT_THAT(values(from_to(0, 1)), testing::ElementsAre(0, 1));
  EXPECT_EQ(to_string(from_to(0, 1)), "0 or 1");
  EXPECT_EQ(to_string(from_to(1, 1)), "1");
  EXPECT_THAT(values(from_to(64, 256, 64)), testing::ElementsAre(64, 128, 192, 256));
  EXPECT_EQ(to_string(from_to(64, 256, 64)), "64, 128, 192 or 256");
  EXPECT_EQ(to_string(from_to(16, 256, 16)), "a multiple of 16 from 16 to 256");
  EXPECT_EQ(to_string(from_to(0, 1 << 30)), "from 0 to 1073741824");
  const int least = std::numeric_limits<int>::min(), most = std::numeric_limits<int>::max();
  for (const Allowed& allowed : {doubled(2, 16), from_to(0, 1 << 30), from_to(16, 256, 16)})
    EXPECT_FALSE(allowed.has(least) || allowed.has(most));
  EXPECT_TRUE(Allowed{}.has(least) && Allowed{}.has(most)) << "no rule, no limit";
}

TEST(Config, TypedTakesOnlyAllowedValues) {
  static constexpr Field<Mine> kRanged[] = {{"block_m", &Mine::block_m, from_to(16, 64, 16)},
                                            {"block_n", &Mine::block_n, doubled(1, 4)}};
  const auto message = [&](std::string_view text) {
    return error_message(ErrorCode::kInvalidArgument, [&] { typed<kRanged>(parse_config(text)); });
  };
  EXPECT_EQ(typed<kRanged>(parse_config("fwd_mine block_m=48 block_n=4")).block_m, 48);
  EXPECT_THAT(message("fwd_mine block_m=0 block_n=4"),
              HasSubstr("block_m=0 must be 16, 32, 48 or 64"));
  EXPECT_THAT(message("fwd_mine block_n=3 block_m=16"), HasSubstr("block_n=3 must be 1, 2 or 4"));
  const auto rules = rules_of(kRanged);
  EXPECT_EQ(wrong_value(parse_config("fwd_mine block_m=64 block_n=1"), rules), "");
  EXPECT_EQ(wrong_value(parse_config("fwd_mine block_m=64 block_n=-1"), rules),
            "block_n=-1 must be 1, 2 or 4");
}

}  // namespace
}  // namespace attnforge
