#include "cli/output/table.h"

#include <gtest/gtest.h>

#include "attnforge/error.h"

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

TEST(Table, CsvIsReadAsItWasWritten) {
  const Table table{{{"a"}, {"b"}},
                    {{"plain", "with, comma"}, {"say \"x\"", "two\nlines"}, {"", ""}}};
  const Table read = parse_csv("# a comment\n" + csv(table), "t.csv");
  ASSERT_EQ(read.columns.size(), 2u);
  EXPECT_EQ(read.columns[1].name, "b");
  EXPECT_EQ(read.rows, table.rows);
}

TEST(Table, CsvOfASpreadsheetIsRead) {
  EXPECT_EQ(parse_csv("a,b\r\n1,\"2\"\r\n\r\n3,4", "t.csv").rows,
            (std::vector<std::vector<std::string>>{{"1", "2"}, {"3", "4"}}));
}

TEST(Table, CsvWithARowOfAnotherLengthNamesItsLine) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      parse_csv(text, "t.csv");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("a,b\n\"1\n1\",2\n3\n"),
            "t.csv:4: the row has 1 cells, but there are 2 names of columns");
  EXPECT_NE(message("").find("t.csv:1"), std::string::npos);
}

}  // namespace
}  // namespace attnforge::cli
