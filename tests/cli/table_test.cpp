#include "cli/table.h"

#include <gtest/gtest.h>

namespace attnforge::cli {
namespace {

constexpr auto kRight = Column::Align::kRight;

TEST(Table, AlignsColumnsAndLeavesNoBlanksAtTheEnd) {
  const Table table{{{"us", kRight}, {"name"}, {"note"}},
                    {{"1.5", "a", ""}, {"10.25", "long name", "x"}}};
  EXPECT_EQ(aligned(table, "  "),
            "     us  name       note\n"
            "    1.5  a\n"
            "  10.25  long name  x\n");
}

TEST(Table, CsvQuotesWhatNeedsIt) {
  const Table table{{{"a"}, {"b", kRight}},
                    {{"plain", "with, comma"}, {"say \"x\"", "two\nlines"}}};
  EXPECT_EQ(csv(table), "a,b\nplain,\"with, comma\"\n\"say \"\"x\"\"\",\"two\nlines\"\n");
}

}  // namespace
}  // namespace attnforge::cli
