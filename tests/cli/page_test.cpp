// page_test.cpp - pages that need nothing but themselves, whatever text goes into them.
#include "cli/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kHostile = "</script><script>alert(1)</script><!-- ]]> \" ' & \x1b[2J\xff";

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
  return times;
}

TEST(Page, HtmlTextCanEndNoAttributeAndBeginNoTag) {
  EXPECT_EQ(html_text("a<b>\"c'&d"), "a&#60;b&#62;&#34;c&#39;&#38;d");
  EXPECT_THAT(html_text("\x1b[2J"), Not(HasSubstr("\x1b")));
}

TEST(Page, JsonBlockIsJsonAndNeverMarkup) {
  const Json data{{"text", kHostile}, {"<key>", 1}};
  const std::string block = json_block(data);
  for (const char c : {'<', '>', '&', '\x1b', '\n'}) EXPECT_EQ(block.find(c), block.npos) << int(c);
  const Json back = Json::parse(block);
  EXPECT_EQ(back.at("<key>"), 1);
  EXPECT_THAT(back.at("text").get<std::string>(), HasSubstr("</script><script>alert(1)"));
}

TEST(Page, HostileTextStaysText) {
  for (const char* name : {"inspect.html", "report.html"}) {
    const std::string harmless = page(name, "title", Json::object());
    const std::string hostile = page(name, kHostile, Json{{"config", kHostile}});
    for (const char* tag : {"<script", "</script", "<!--", "<title"})
      EXPECT_EQ(count(hostile, tag), count(harmless, tag)) << tag;
    EXPECT_THAT(hostile, Not(HasSubstr("alert(1)</script>")));
  }
}

TEST(Page, WordsBetweenAtSignsInDataAreNotFilledIn) {
  const std::string filled = page("report.html", "@data@", Json{{"text", "@page.css@ @title@"}});
  EXPECT_THAT(filled, HasSubstr("<title>@data@</title>"));
  EXPECT_THAT(filled, HasSubstr("\"@page.css@ @title@\""));
}

TEST(Page, NothingIsLoadedFromAnywhere) {
  for (const char* name : {"inspect.html", "report.html"}) {
    const std::string text = page(name, "title", Json::object());
    EXPECT_FALSE(std::regex_search(text, std::regex(R"((https?:)?//[a-z0-9.-]+\.[a-z]{2,}/)")));
    for (const char* loader :
         {" src=", "<link", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", "innerHTML",
          "insertAdjacentHTML", "document.write", "eval("})
      EXPECT_THAT(text, Not(HasSubstr(loader)));
    EXPECT_THAT(text, HasSubstr("default-src 'none'"));
    EXPECT_LT(text.size(), 100u << 10) << "styles and scripts are small";
  }
}

TEST(Page, AFileThatIsNotThereIsAnError) { EXPECT_THROW(page_file("none.js"), Error); }

}  // namespace
}  // namespace attnforge::cli
