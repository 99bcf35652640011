// digest_test.cpp - which edits of template headers change which kernels' digests.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "generator/candidates.h"
#include "generator/overrides.h"
#include "templates/embedded.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

Overrides with_headers() {
  Overrides overrides;
  overrides.own_templates = true;
  for (const Header& header : embedded_headers())
    overrides.headers.push_back({std::string(header.path), std::string(header.text)});
  return overrides;
}

/// More code in one header.
Overrides with_edit_of(const std::string& path) {
  Overrides overrides = with_headers();
  for (TemplateFile& file : overrides.headers) {
    if (file.path == path) {
      file.text += "inline constexpr int kEdited = 1;\n";
      return overrides;
    }
  }
  ADD_FAILURE() << "there is no header " << path;
  return overrides;
}

/// Of the first candidate; nullopt where the family does not serve the problem.
std::optional<std::string> digest_of(const Family& family, const char* text,
                                     const Overrides& overrides = {}) {
  static std::map<std::pair<const Family*, std::string>, std::optional<Config>> configs;
  const Problem problem = parse_problem(text);
  const auto [entry, is_new] = configs.try_emplace({&family, text});
  const DeviceFacts& device = typical_device("90a");
  if (is_new && rejection(family, problem, device.arch).empty())
    entry->second = candidates(family, problem, device).front().config;
  if (!entry->second) return std::nullopt;
  return digest(render(family, *entry->second, problem, overrides));
}

constexpr const char* kPlain = "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=64 causal";
constexpr const char* kPlainF32 = "fwd fp32 batch=2 num_heads=8 seqlen=1024 head_dim=64 causal";
constexpr const char*
    kOptions = "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=64 softcap=30 rope=half";
constexpr const char*
    kOptionsF32 = "fwd fp32 batch=2 num_heads=8 seqlen=1024 head_dim=64 softcap=30 rope=half";

TEST(DigestOfTemplates, EditsOfCommentsLeaveThoseOfAllFamilies) {
  Overrides overrides = with_headers();
  for (TemplateFile& file : overrides.headers) {
    std::string edited = "// An edit.\n";
    for (const char c : file.text)
      edited += c == ';' ? std::string("; /* edited */") : std::string(1, c);
    if (file.text.find("asm") != file.text.npos)
      edited = "/* Strings have semicolons. */" + file.text;
    file.text = edited;
  }
  for (const Family* family : registry()) {
    for (const char* problem : {kPlain, kPlainF32, kOptions, kOptionsF32})
      EXPECT_EQ(digest_of(*family, problem, overrides), digest_of(*family, problem))
          << family->name << ", " << problem;
  }
}

TEST(DigestOfTemplates, AnEditOfSharedCodeChangesThoseOfAllFamilies) {
  const Overrides overrides = with_edit_of("base.cuh");
  for (const Family* family : registry()) {
    for (const char* problem : {kPlain, kPlainF32}) {
      const auto today = digest_of(*family, problem);
      if (today) {
        EXPECT_NE(digest_of(*family, problem, overrides), today) << family->name;
      }
    }
  }
}

struct Part {
  const char* header;
  const char* problem;  // that has it
  const char* family;
};

TEST(DigestOfTemplates, AnEditOfAPartChangesOnlyThoseOfKernelsThatHaveIt) {
  constexpr const char* kRotation = "parts/rope/step_rotate.cuh";
  for (const Part& part :
       {Part{kRotation, kOptions, "fwd_wgmma_sm90a"}, Part{kRotation, kOptions, "fwd_mma_sm80"},
        Part{kRotation, kOptionsF32, "fwd_regtile_f32"}, Part{kRotation, kOptions, "fwd_wmma"}}) {
    const Overrides overrides = with_edit_of(part.header);
    const Family& family = *find_family(part.family);
    ASSERT_TRUE(digest_of(family, part.problem)) << part.family;
    EXPECT_NE(digest_of(family, part.problem, overrides), digest_of(family, part.problem))
        << part.family << ", " << part.header;
    for (const char* problem : {kPlain, kPlainF32})
      EXPECT_EQ(digest_of(family, problem, overrides), digest_of(family, problem))
          << part.family << ", " << part.header << ", " << problem;
  }
}

}  // namespace
}  // namespace attnforge
