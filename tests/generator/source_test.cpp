// source_test.cpp - flattened sources and their digests.
#include "generator/source.h"

#include <vector>

#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

using testing::HasSubstr;

const std::vector<Header> kHeaders = {
    {"base.cuh", "// base.cuh - words\n#pragma once\nusing u32 = unsigned;\n"},
    {"mine/kernel.cuh",
     "#pragma once\n#include \"base.cuh\"\n  #  include  \"tile/softmax.cuh\"  // rows\nstruct "
     "Kernel {};\n"},
    {"tile/softmax.cuh", "#pragma once\n\n#include \"base.cuh\"\nstruct Softmax {};"},
    {"loop/a.cuh", "#include \"loop/b.cuh\"\nstruct A {};\n"},
    {"loop/b.cuh", "#include \"loop/a.cuh\"\nstruct B {};\n"},
    {"bad/std.cuh", "#include <cstdint>\n"},
    {"bad/missing.cuh", "#include \"tile/nothing.cuh\"\n"},
    {"bad/relative.cuh", "#include \"softmax.cuh\"\n"},
    {"bad/open.cuh", "#include \"base.cuh\n"},
    {"bad/conditional.cuh", "#ifdef X\n#include \"base.cuh\"\n#endif\n"},
    {"ok/conditional.cuh",
     "#if defined(X)\nint x;\n#else\nint y;\n#endif\n#include \"base.cuh\"\n#define Z 1\n"},
};

std::string flat(std::string_view entry) { return self_contained(entry, kHeaders); }

TEST(SelfContained, EachHeaderStandsOnceWhereItIsFirstIncluded) {
  EXPECT_EQ(flat("// generated: mine a=1\n#include \"mine/kernel.cuh\"\n#include \"base.cuh\"\nint "
                 "main;\n"),
            "// generated: mine a=1\n"
            "// ---- mine/kernel.cuh\n"
            "// ---- base.cuh\n"
            "// base.cuh - words\n"
            "using u32 = unsigned;\n"
            "// ---- tile/softmax.cuh\n"
            "\n"
            "struct Softmax {};\n"
            "struct Kernel {};\n"
            "int main;\n");
}

TEST(SelfContained, HeadersThatIncludeEachOtherEnd) {
  EXPECT_EQ(flat("#include \"loop/a.cuh\"\n"),
            "// ---- loop/a.cuh\n// ---- loop/b.cuh\nstruct B {};\nstruct A {};\n");
}

TEST(SelfContained, OtherDirectivesAndCommentsStay) {
  EXPECT_EQ(flat("#include \"ok/conditional.cuh\"\n// #include \"no.cuh\"\n"),
            "// ---- ok/conditional.cuh\n#if defined(X)\nint x;\n#else\nint y;\n#endif\n"
            "// ---- base.cuh\n// base.cuh - words\nusing u32 = unsigned;\n#define Z 1\n"
            "// #include \"no.cuh\"\n");
  EXPECT_EQ(flat("#pragma unroll\nfor (;;);\n"), "#pragma unroll\nfor (;;);\n");
}

TEST(SelfContained, FlatteningAFlatTextChangesNothing) {
  const std::string once = flat("#include \"mine/kernel.cuh\"\n");
  EXPECT_EQ(flat(once), once);
}

TEST(SelfContained, EmptyTextAndNoLastNewline) {
  EXPECT_EQ(flat(""), "");
  EXPECT_EQ(flat("int x;"), "int x;\n");
  EXPECT_EQ(flat("a\r\n\n"), "a\r\n\n");
}

TEST(SelfContained, ErrorsNameTheFileAndTheLine) {
  const auto message = [](const std::string& path) {
    return error_message(ErrorCode::kInternal, [&] { flat("#include \"" + path + "\"\n"); });
  };
  EXPECT_THAT(message("bad/std.cuh"), HasSubstr("bad/std.cuh has the line '#include <cstdint>'"));
  EXPECT_THAT(message("bad/missing.cuh"),
              HasSubstr("bad/missing.cuh includes \"tile/nothing.cuh\""));
  EXPECT_THAT(message("bad/relative.cuh"), HasSubstr("\"softmax.cuh\""));
  EXPECT_THAT(message("bad/open.cuh"), HasSubstr("bad/open.cuh has the line"));
  EXPECT_THAT(message("bad/conditional.cuh"), HasSubstr("inside #if"));
  EXPECT_THAT(message("none.cuh"), HasSubstr("the generated entry includes \"none.cuh\""));
}

TEST(Digest, IsThirtyTwoHexDigitsOfXxh3) {
  Source source;
  source.text = "int x;\n";
  const std::string text = digest(source);
  EXPECT_EQ(text.size(), 32u);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), text.npos);
  EXPECT_EQ(digest(source), text);
}

TEST(Digest, FollowsTextAndOptionsOnly) {
  Source source;
  source.name = "kernel";
  source.text = "int x;\n";
  source.options = {"--ftz=true", "-G"};
  const std::string original = digest(source);
  Source other = source;
  other.name = "another";
  other.entry = "anything";
  EXPECT_EQ(digest(other), original);
  other.text = "int y;\n";
  EXPECT_NE(digest(other), original);
  other = source;
  other.options = {"--ftz=true-G"};
  EXPECT_NE(digest(other), original);
  other.options = {"-G", "--ftz=true"};
  EXPECT_NE(digest(other), original);
  other.options = {};
  EXPECT_NE(digest(other), original);
}

}  // namespace
}  // namespace attnforge
