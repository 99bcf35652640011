// source_test.cpp - flattened sources and their digests.
#include "generator/source.h"

#include <fmt/format.h>

#include <string>
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

Source flattened(std::string_view entry, std::span<const Header> headers = kHeaders) {
  Source source;
  source.entry = entry;
  flatten(source, headers);
  return source;
}

std::string flat(std::string_view entry) { return flattened(entry).text; }

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

/// Digest of an entry over one header.
std::string digest_with(std::string_view header, std::string_view entry = "int main;\n") {
  const Header headers[] = {{"a.cuh", header}};
  return digest(flattened("#include \"a.cuh\"\n" + std::string(entry), headers));
}

TEST(Digest, CommentsAndBlankSpaceLeaveIt) {
  const std::string original = digest_with("struct A {};\n");
  EXPECT_EQ(digest_with("// a.cuh - A\nstruct A {   };  // more\n"), original);
  EXPECT_EQ(digest_with("struct A {};\n", "// generated: by hand\n\nint\tmain;\n"), original);
  EXPECT_NE(digest_with("struct B {};\n"), original);
  EXPECT_NE(digest_with("struct A {};\n", "int Main;\n"), original);
}

TEST(Digest, TextMovedFromOnePartToTheNextIsAnother) {
  EXPECT_NE(digest_with("int a;\n", "int b;\n"), digest_with("int a; int b;\n", ""));
  EXPECT_NE(digest_with("#if X\n#endif\n", "int b;\n"), digest_with("#if X\n", "#endif\nint b;\n"));
}

TEST(Digest, OfATextThatIsNotLookedIntoIsThatOfEveryByte) {
  const std::string raw = "const char* s = R\"(a)\";\n";
  const std::string original = digest_with(raw);
  EXPECT_EQ(digest_with(raw), original);
  EXPECT_NE(digest_with(raw + "// comment\n"), original);
  EXPECT_NE(digest_with(raw, "int main; // comment\n"), original)
      << "what looks like a comment of one part may not be one after another part";
}

TEST(Digest, HeadersThatMoveLeaveIt) {
  const auto of_paths = [](std::string_view outer, std::string_view inner, std::string_view end) {
    const std::string text = fmt::format("#include \"{}\"\nstruct A {{}};\n", inner);
    const Header headers[] = {{outer, text}, {inner, "struct B {};\n"}};
    return digest(flattened(fmt::format("#include \"{}\"\n{}", outer, end), headers));
  };
  for (const std::string_view end : {"int main;\n", "const char* s = R\"(a)\";\n"}) {
    const std::string original = of_paths("a.cuh", "tile/b.cuh", end);
    EXPECT_EQ(of_paths("parts/c/a.cuh", "b.cuh", end), original);
  }
  const Header both[] = {{"a", "int a;\n"}, {"b", "int b;\n"}};
  EXPECT_NE(digest(flattened("#include \"a\"\n#include \"b\"\n", both)),
            digest(flattened("#include \"b\"\n#include \"a\"\n", both)));
}

TEST(Digest, IsTheSameWhereTheCodeOfHeadersIsKept) {
  std::vector<LazyCode> codes(kHeaders.size());
  std::vector<Header> headers = kHeaders;
  for (std::size_t i = 0; i < headers.size(); ++i) headers[i].code = &codes[i];
  const std::string entry = "#include \"mine/kernel.cuh\"\n#include \"ok/conditional.cuh\"\n";
  const Source computed = flattened(entry);
  EXPECT_NE(computed.code, "");
  for (int i = 0; i < 2; ++i) {
    const Source kept = flattened(entry, headers);
    EXPECT_EQ(kept.text, computed.text);
    EXPECT_EQ(kept.code, computed.code);
  }
}

}  // namespace
}  // namespace attnforge
