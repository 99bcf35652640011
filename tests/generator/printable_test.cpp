// printable_test.cpp - texts from elsewhere cannot steer a terminal.
#include "attnforge/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace attnforge {
namespace {

TEST(Printable, LeavesOrdinaryTextAsItIs) {
  for (const char* text :
       {"", "fwd bf16 seqlen_q=64", "a \"quoted\" C:\\path", "\u00e9\u4e2d\U0001F600"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsWhatWouldSteerATerminal) {
  EXPECT_EQ(printable("\x1b[2J\x1b]0;title\a"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(printable("one\ntwo\r\tthree"), "one\\ntwo\\r\\tthree");
  EXPECT_EQ(printable("\x7f"
                      "\b"),
            "\\x7f\\x08");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "CSI as one character";
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m")
      << "and as one byte, which is not UTF-8";
  EXPECT_EQ(printable("a\u202eb\u2066c\u2028d"),
            "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xe2\\x80\\xa8d");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("cut \xe4\xb8"), "cut \\xe4\\xb8");
}

TEST(Printable, LinesStayLinesWhereTheyAreWanted) {
  EXPECT_EQ(printable_lines("error:\n\tat \x1b[1mline\x1b[0m 3\r\n"),
            "error:\n at \\x1b[1mline\\x1b[0m 3\\r\n");
}

}  // namespace
}  // namespace attnforge
