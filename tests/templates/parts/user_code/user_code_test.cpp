// user_code_test.cpp - the user's texts in generated sources and launches, without a compiler.
#include "templates/parts/user_code/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <sstream>
#include <string>
#include <string_view>

#include "attnforge/code_texts.h"
#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/pair_terms.h"
#include "generator/user_code/user_code.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"

namespace attnforge {
namespace {

using testing::HasSubstr;
using testing::Not;

Problem dense() {
  return parse_problem("fwd bf16 batch=2 num_heads=16:4 seqlen=1024 head_dim=128 causal");
}

Source rendered(const Problem& problem, const char* family = "fwd_mma_sm80") {
  const Family& of = *find_family(family);
  return of.render(candidates(of, problem, typical_device("90a")).front().config, problem);
}

/// Lines that a compiler takes as directives.
std::vector<std::string> directives(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t") != line.npos && line[line.find_first_not_of(" \t")] == '#')
      found.push_back(line);
  }
  return found;
}

TEST(UserCode, StandsInTheEntryByteForByteBetweenItsLines) {
  Problem problem = dense();
  problem.score = "s +\n  slope[head] *\n (k - q)";
  problem.args = "float* slope[num_heads_q]";
  const std::string entry = rendered(problem).entry;
  EXPECT_THAT(entry,
              HasSubstr("\n#line 1 \"score\"\n" + problem.score + " ));\n#line 1 \"entry\"\n"));
  EXPECT_THAT(entry, Not(HasSubstr("#line 1 \"mask\"")));
  EXPECT_EQ(entry.find(problem.score), entry.rfind(problem.score)) << "once";
}

TEST(UserCode, ReadsRowsOfAMaskThatIsAnElementOfBooleansAtKAndTheRest) {
  Problem problem = dense();
  problem.args = "bool* seen, int* kinds, int pitch";
  const auto reads = [&](const std::string& mask) {
    problem.mask = mask;
    const PairTerms terms = pair_terms(problem);
    return struct_of_code(problem, mask_code(problem), &terms).find("place_of_mask") !=
           std::string::npos;
  };
  for (const char* mask :
       {"seen[q * 1024 + k]", "(seen[(head * seqlen_q + q) * pitch + k])", "seen[pitch + k]",
        "seen[kinds[q] + k]", "(q >= k) && seen[q * pitch + (k)]"})
    EXPECT_TRUE(reads(mask)) << mask;
  for (const char* mask :
       {"seen[k + q]", "seen[q * pitch + k] && q < 9", "!seen[q * pitch + k]", "kinds[q + k]",
        "seen[q * pitch + k / 2]", "seen[kinds[k] + k]", "seen[q - k]", "seen[q ? q : q + k]",
        "seen[k]", "(q % 2 == 0) && seen[q * pitch + k]", "[&] { return seen[q + k]; }()"})
    EXPECT_FALSE(reads(mask)) << mask;
}

TEST(UserCode, IsNoPartOfSymbolsButForItsHash) {
  Problem problem = dense();
  add_code(problem, alibi());
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_naive"}) {
    const Source source = rendered(problem, name);
    EXPECT_TRUE(source.name.ends_with(code_suffix(problem))) << source.name;
    const Family& family = *find_family(name);
    const DeviceFacts& device = typical_device("90a");
    const Launch launch = family.launch(candidates(family, problem, device).front().config, problem,
                                        device);
    EXPECT_EQ(launch.steps[own_step(launch)].kernel, source.name);
    EXPECT_EQ(test::argument_fault(launch.steps[own_step(launch)]), "");
  }
}

TEST(UserCode, LeavesKernelsWithoutItAlone) {
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_naive"})
    EXPECT_THAT(rendered(dense(), name).entry,
                testing::AllOf(Not(HasSubstr("User")), Not(HasSubstr("user"))));
}

TEST(UserCode, IsSeenAfterTheSoftCapThatTheProblemHas) {
  Problem problem = dense();
  problem.softcap = 30;
  problem.score = "s * 2";
  EXPECT_THAT(rendered(problem).entry,
              HasSubstr("using Score = UserScore<UserCode, SoftcapScore>;"));
  problem.softcap = 0;
  EXPECT_THAT(rendered(problem).entry,
              HasSubstr("using Score = UserScore<UserCode, DensePieces<kConfig>::Score>;"));
}

TEST(UserCode, ClampsPositionsWhereItReadsArraysByKey) {
  Problem problem = dense();
  add_code(problem, relative_bias(16));
  add_code(problem, {.mask = "k <= q"});
  EXPECT_THAT(rendered(problem).entry,
              HasSubstr("kScoreReadsByKey = true, kMaskReadsByKey = false"));
}

/// An index of 2^31 or more is not computed in 32 bits; all else stays as it is.
TEST(UserCode, HasPositionsOf64BitsWhereItsArraysAreThatLarge) {
  constexpr const char* kIndex = "(batch * 16 + head) * seqlen_q * seqlen_kv + q * seqlen_kv + k";
  struct Case {
    const char *sizes, *args, *index;
    bool wide;
  };
  for (const Case& c : {
           Case{"batch=8 seqlen=4096", "float* bias[batch * num_heads_q * seqlen_q * seqlen_kv]",
                kIndex, false},
           {"batch=16 seqlen=4096", "bf16* bias[batch * num_heads_q * seqlen_q * seqlen_kv]",
            kIndex, true},
           // Another problem of a bucket with such arrays.
           {"batch=9 seqlen=3600", "fp16* bias[batch * num_heads_q * seqlen_q * seqlen_kv]", kIndex,
            true},
           {"batch=16 seqlen=4096", "int* bias[batch * num_heads_q * seqlen_q * seqlen_kv]", kIndex,
            true},
           {"batch=16 seqlen=4096", "float* bias", kIndex, true},
           {"batch=8 seqlen=4096", "float* bias", kIndex, false},
           {"batch=1 batch_invariant lengths=used seqlen=4096",
            "float* bias[batch * num_heads_q * seqlen_q * seqlen_kv]", kIndex, true},
           {"batch=16 seqlen=4096", "float* bias", "head * seqlen_q + q", false},
           {"batch=16 seqlen=4096", "float* bias, int stride", "head * stride + k", false},
           {"batch=16 seqlen=4096", "float* bias[2048 * num_heads_q], int stride",
            "head * stride + k", false},
           {"batch=16 seqlen=4096", "float* bias[1 * num_heads_q]", "head", false},
           {"batch=16 seqlen=4096", "float* bias, float* other[4294967296]", "head", false},
           // Nobody knows what ints of arrays and of functions are; a place by itself fits in ints.
           {"seqlen=8192", "float* bias", "(int)floorf(q * 0.5f) * seqlen_kv * 1024 + k", true},
           {"seqlen=8192", "float* bias", "(int)floorf(q * 0.5f) * seqlen_kv + k", false},
           {"seqlen=8192", "float* bias", "int(expf(q)) * seqlen_kv + k", true},
           {"seqlen=8192", "float* bias", "int(q / 2.0f) * 1024 + k", false},
           {"seqlen=8192", "float* bias", "int(logf(abs(k - q) + 1) * 8.0f) * 16 + head", false},
           {"seqlen=8192", "float* bias, float factor", "int(q * factor) * 16 + head", false},
           {"seqlen=8192", "float* bias, int* d", "d[q] * seqlen_kv + k", true},
           {"seqlen=8192", "float* bias, int* d[seqlen_q]", "d[q] * 1024", true},
           {"seqlen=8192", "float* bias, float* d", "int(d[q]) * seqlen_kv + k", true},
           {"seqlen=8192", "float* bias, bool* d", "d[q] * seqlen_kv + k", false},
           {"seqlen=8192", "float* bias, int* d", "d[q]", false},
           {"seqlen=8192", "float* bias, int* d", "d[q] - d[k] + 511", false},
           {"seqlen=8192", "float* bias, int* d", "d[q] % 16 * seqlen_kv + k", false},
           {"seqlen=8192", "float* bias[seqlen_q], int* d", "d[q] * 16 + head", false},
           {"seqlen=8192", "float* bias[seqlen_q]", "head * 64 + k", false},
           // What is small again after it was not.
           {"seqlen=8192", "float* bias[1024]", "(q * 8192 + k) * 7919 % 1024", true},
           {"seqlen=8192", "float* bias", "(q * 8192 + k) * 7919 % 1024", true},
           {"seqlen=8192", "float* bias[1024]", "(q * 8192 + k) % 1024", false},
           {"seqlen=8192", "float* bias[1024], int* d", "(d[q] * 31 + k) % 1024", true},
           {"seqlen=8192", "float* bias[1024], int* d", "d[q] % 1024", false},
           {"seqlen=8192", "float* bias[257]", "min(max(k - q, -128), 128) + 128", false},
       }) {
    Problem problem = parse_problem(std::string("fwd bf16 num_heads=16 head_dim=128 ") + c.sizes);
    problem.args = c.args;
    problem.mask = std::string("bias[") + c.index + "] > 0";
    const std::string code = struct_of_code(problem, problem.mask);
    EXPECT_EQ(code.find("#include \"parts/user_code/wide_indexes.cuh\"") == 0, c.wide)
        << c.args << c.sizes;
    EXPECT_EQ(code.find("i64 batch, i64 head, i64 q") != code.npos, c.wide) << c.args << c.sizes;
    EXPECT_EQ(code.find("int batch, int head, int q") == code.npos, c.wide) << c.args << c.sizes;
    const Problem of_bucket = bucket(problem);
    EXPECT_EQ(struct_of_code(of_bucket, of_bucket.mask), code)
        << "a cubin serves the bucket: " << c.sizes;
  }
}

TEST(AddCode, CombinesTexts) {
  Problem problem = dense();
  add_code(problem, alibi());
  add_code(problem, tanh_cap(50));
  add_code(problem, prefix_lm());
  add_code(problem, dilated_window(8, 2));
  EXPECT_EQ(problem.score,
            "[&](float s) { return 50.0f * tanhf(s / 50.0f); }(s + slope[head] * (k - q))");
  EXPECT_THAT(problem.mask, HasSubstr(") && (abs(k - q) <= 8 && (k - q) % 2 == 0)"));
  EXPECT_EQ(problem.args, "float* slope[num_heads_q], int* prefix[batch]");
  EXPECT_THROW(add_code(problem, alibi()), Error) << "two arguments of one name";
}

/// As often as a text may have it.
std::string repeated(std::string text, std::string_view next) {
  while (text.size() + next.size() <= kMostCodeBytes) text += next;
  return text;
}
double seconds_to_plan(const CodeTexts& texts, const char* op, const char* dargs = "") {
  Problem problem = parse_problem(std::string(op) +
                                  " bf16 batch=2 num_heads=16:4 seqlen=1024 head_dim=128");
  problem.score = texts.score;
  problem.mask = texts.mask;
  problem.args = texts.args;
  problem.dargs = dargs;
  const std::clock_t begin = std::clock();  // of a core: others may take turns
  validate(problem);
  for (const char* family : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "bwd_wgmma_sm90a", "bwd_mma_sm80"})
    candidates(*find_family(family), problem, typical_device("90a"));
  return double(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// A plan looks at thousands of configs, and each may ask what the texts are: they are read once.
TEST(UserCode, TakesNoLongTimeToPlanHoweverLongItIs) {
  const auto seconds = [](const std::string& score, const std::string& mask, const char* op) {
    return seconds_to_plan({.score = score, .mask = mask}, op);
  };
  const std::string deep(4000, '('), closed(4000, ')');
  for (const char* op : {"fwd", "bwd"}) {
    const double usual = seconds("s + 2", "k % 3 == q % 2 && k <= q", op);
    for (const std::string& text :
         {repeated("k % 3 == 1", " && k % 3 == 1"), repeated("k <= q", " && k <= q"),
          repeated("k", " + k"), deep + "k <= q" + closed, deep + "k & q" + closed,
          repeated("(k)", " || (q && k)")}) {
      const double most = 4 * usual + 0.5;  // it was 9 s
      EXPECT_LT(seconds("s + k", text, op), most) << op << " mask: " << text.substr(0, 20);
    }
    EXPECT_LT(seconds(repeated("s", " + k"), "k <= q", op), 4 * usual + 0.5) << op << " score";
  }
}

TEST(Dargs, TakeNoLongTimeToPlanHoweverLongTheTextIs) {
  const auto seconds = [](const std::string& score, const char* args) {
    return seconds_to_plan({.score = score, .args = args}, "bwd", "a");
  };
  constexpr const char *kArray = "float* a", *kRows = "aligned bf16* a, int n";
  const double most = 4 * seconds("s + a[k]", kArray) + 0.5;
  for (const std::string& text :
       {repeated("s", " + a[k]"), repeated("s * a[0]", " + k"),
        "s + a[" + repeated("k", "+k").substr(8) + "]",
        "s + a[" + std::string(4000, '(') + "k" + std::string(4000, ')') + "]"})
    EXPECT_LT(seconds(text, kArray), most) << text.substr(0, 20);
  EXPECT_LT(seconds(repeated("s + a[q * n + k]", " + k"), kRows), most) << "rows";
}

TEST(LadderFamilies, SayThatTheyDoNotTakeCode) {
  Problem problem = dense();
  problem.mask = "k != q";
  for (const char* name : {"fwd_wmma", "fwd_flash_vec", "fwd_flash_scalar", "fwd_materialized"})
    EXPECT_THAT(rejection(*find_family(name), problem, typical_device("90a").arch),
                HasSubstr("mask code"));
}

/// Whatever validate() lets through adds no directive to the source, and no line outside of its
/// own.
TEST(UserCode, AddsNoDirectiveWhateverItSays) {
  const std::size_t usual = [] {
    Problem problem = dense();
    problem.score = problem.mask = "1";
    return directives(rendered(problem).text).size();
  }();
  for (const char* text :
       {"s\n", "\n\ns", "s */ 1 /", "1 ? s : k", "(s,\n1)", "[&]{ return s;\n }()", "s\n\n;\n",
        "R(s)", "defined(s)", "include <a>", "line 1", "s @", "L s"}) {
    Problem problem = dense();
    problem.score = problem.mask = text;
    try {
      validate(problem);
    } catch (const Error&) {
      continue;
    }
    const Source source = rendered(problem);
    EXPECT_EQ(directives(source.text).size(), usual) << text;
    EXPECT_THAT(source.name, Not(HasSubstr(" ")));
  }
}

}  // namespace
}  // namespace attnforge
