// code_text_test.cpp - what of a text counts, and what is too subtle to tell.
#include "generator/text/code_text.h"

#include <gtest/gtest.h>

namespace attnforge {
namespace {

std::string code(std::string_view text) { return code_text(text).value_or("unclear"); }

TEST(CodeText, CommentsAndBlankSpaceAreOneBlankOrNothing) {
  EXPECT_EQ(code("int  x = 1;  // one\n\n\tint y;\n"), "int x = 1;int y;");
  EXPECT_EQ(code("int/**/x;"), "int x;");
  EXPECT_EQ(code("a/* * / // */-b"), "a -b");
  EXPECT_EQ(code("f( a ,\n   b )[ 2 ];"), "f(a,b)[2];");
  EXPECT_EQ(code("x = y / z;\r\n"), "x = y / z;");
  EXPECT_EQ(code(" // only a comment"), "");
  EXPECT_EQ(code(""), "");
}

TEST(CodeText, BlanksThatSeparateTokensStay) {
  EXPECT_NE(code("a + +b;"), code("a ++b;"));
  EXPECT_NE(code("a - -b;"), code("a--b;"));
  EXPECT_NE(code("int x;"), code("intx;"));
  EXPECT_NE(code("a< ::b;"), code("a<::b;"));
  EXPECT_NE(code("1 .x"), code("1.x"));
  EXPECT_NE(code("x / *p"), code("x /*p"));
  EXPECT_NE(code("\"a\" _b"), code("\"a\"_b"));
}

TEST(CodeText, LiteralsStayAsTheyAre) {
  for (const char* text :
       {R"(asm("wgmma  // no comment");)", R"(s = "/* no comment */";)", R"(c = '"',d = "'";)",
        R"(s = "a \" // b";)", R"(c = '\'';)", R"(s = "\\";)", R"(s = "(  )  ;";)"})
    EXPECT_EQ(code(text), text);
  EXPECT_EQ(code(R"(s = "\\"; // comment)"), R"(s = "\\";)");
  EXPECT_NE(code(R"(asm("a  b");)"), code(R"(asm("a b");)"));
}

TEST(CodeText, NumbersMayHaveQuotesAndSigns) {
  EXPECT_EQ(code("x = 1'000'000 + 0x1p-3 + 1.5e+3f; // it's"), "x = 1'000'000 + 0x1p-3 + 1.5e+3f;");
  EXPECT_EQ(code("x = .5e-3f+a; // it's"), "x = .5e-3f+a;");
}

TEST(CodeText, DirectivesHaveALineEach) {
  EXPECT_EQ(code("int a;\n#pragma  unroll  // all\nfor (;;) {}\n"),
            "int a;\n#pragma unroll\nfor(;;){}");
  EXPECT_NE(code("#define F (x)\n"), code("#define F(x)\n"));
  EXPECT_NE(code("#define A\nb\n"), code("#define A b\n"));
  EXPECT_NE(code("a\n#pragma unroll\n b"), code("a b\n#pragma unroll\n"));
  EXPECT_EQ(code("#if defined(X) /* if\n so */ && Y\nint x;\n#endif"),
            "#if defined(X) && Y\nint x;\n#endif");
  EXPECT_EQ(code("#define A b \\\n  c\nd"), "#define A b c\nd");
  EXPECT_EQ(code("/* a\n b */ #pragma unroll\nx"), "#pragma unroll\nx");
}

TEST(CodeText, WhatIsTooSubtleIsUnclear) {
  for (const char* text : {
           "s = R\"(// no comment)\";",             // raw strings
           "s = u8R\"x(\")x\";",                    //
           "x = __LINE__;",                         // meaning by line
           "assert(x);",                            //
           "#line 7\n",                             //
           "#define S(x) #x\n",                     // blanks in an argument count
           "#define P(a, b) a##b\n",                //
           "int x; // to be continued \\\nint y;",  // the comment goes on
           "int x; // what now? \?\?/\nint y;",     //
           "in\\\nt x;",                            // a word in two halves
           "s = \"a\\\nb\";",                       //
           "/\\\n/ comment",                        //
           "/* *\\\n/ int x; /* */",                //
           "%:define X\n",                          // a directive in disguise
           "s = \"a",                               // no end
           "c = 'a",                                //
           "/* a",                                  //
           "#error don't\n",                        //
           "#include <a//b>\n",                     // a path is not tokens
           "/*\n#include \"a.cuh\"\n*/",            // put in its place all the same
           "int\vx;",                               // odd blanks
           "int x; // \f",                          //
           "a # b",                                 // no directive
       })
    EXPECT_FALSE(code_text(text)) << text << "\nbecame\n" << code(text);
  EXPECT_FALSE(code_text(std::string_view("int x;\0int y;", 13)));
  EXPECT_FALSE(code_text(std::string_view("int x; // \0int y;", 16)));
}

}  // namespace
}  // namespace attnforge
