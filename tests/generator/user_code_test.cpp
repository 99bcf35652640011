// user_code_test.cpp - the texts of a problem: what comes back, what is refused, what is known.
#include "generator/user_code/user_code.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "generator/problem/bucket.h"
#include "generator/problem/features.h"
#include "generator/tensors/operands.h"
#include "generator/text/words.h"
#include "generator/user_code/code_operands.h"
#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

/// The call is refused with words that hold `why`.
template <class Call>
void expect_error(ErrorCode code, const std::string& why, Call&& call) {
  EXPECT_THAT(error_message(code, call), testing::HasSubstr(why));
}

Problem with_code(std::string score, std::string mask = "", std::string args = "") {
  Problem problem = parse_problem("fwd bf16 num_heads=8:2 batch=3 seqlen=100:200 head_dim=64");
  problem.score = std::move(score);
  problem.mask = std::move(mask);
  problem.args = std::move(args);
  return problem;
}

TEST(CodeText, ComesBackFromTheTextOfAProblem) {
  for (const Problem& problem : {
           with_code("s"),
           with_code("s + slope[head] * (k - q)", "k <= q", "float* slope[num_heads_q]"),
           with_code("s\n+ 1", "k % 2 == 0 &&\nq > 3"),
           with_code("", "k=q", "int a = 3, float b=-0.5"),
       }) {
    const std::string text = to_string(problem);
    EXPECT_EQ(parse_problem(text), problem) << text;
    EXPECT_EQ(text.find('\n'), text.npos) << "one line, whatever the code has";
  }
  EXPECT_EQ(to_string(with_code("s * 2", "k <= q", "int a")),
            to_string(with_code("")) + R"( args="int a" score="s * 2" mask="k <= q")");
}

TEST(CodeText, MayStandWithoutQuotesIfItHasNoBlanks) {
  EXPECT_EQ(parse_problem("fwd mask=k<=q").mask, "k<=q");
  EXPECT_EQ(parse_problem("fwd score=\"\""), parse_problem("fwd")) << "empty is none";
}

TEST(CodeText, IsRefusedWhereItsQuotesAreWrong) {
  const auto refused = [](const char* text, const char* why) {
    expect_error(ErrorCode::kInvalidProblem, why, [&] { parse_problem(text); });
  };
  refused(R"(fwd score="s)", "no closing quote");
  refused(R"(fwd score="s"x)", "goes on after its closing quote");
  refused(R"(fwd score=a"s")", "quote inside");
  refused(R"(fwd score="s\t")", "backslash before 't'");
  refused(R"(fwd score="s" score="s")", "gives score again");
  refused(R"(fwd scores="s")", "did you mean \"score=\"?");
}

TEST(NextWord, EndsAtABlankOutsideOfQuotes) {
  std::string_view text = R"( a="b \" c" d "e f)";
  EXPECT_EQ(next_word(text), R"(a="b \" c")");
  EXPECT_EQ(next_word(text), "d");
  EXPECT_EQ(next_word(text), R"("e f)");
  EXPECT_EQ(next_word(text), "");
  text = "x\"\\";
  EXPECT_EQ(next_word(text), "x\"\\") << "a backslash at the end";
}

struct Refused {
  std::string text, why;
};

TEST(CheckCode, RefusesWhatCouldLeaveTheBracketsThatItIsPutInto) {
  const Refused cases[] = {
      {"s); } void f() { (0", "closes a bracket that is not open, ')' at line 1, column 2"},
      {"s + (k", "does not close the '(' of line 1, column 5"},
      {"s[(k])", "closes a bracket that is not open, ']'"},
      {"s\n#include \"/etc/passwd\"\n", "has a # at line 2, column 1"},
      {"s // + 1", "has a comment at line 1, column 3"},
      {"s /* + 1", "has a comment"},
      {"s */ 2 /", ""},  // a product of a dereferenced 2: the compiler's to refuse
      {"s + 1\\", "has a \\ at line 1, column 6"},
      {"s + 1\\\n", "has a \\"},
      {"s + \"a\"", "has a \""},
      {"s + 'a'", "has a '"},
      {"s <: 0 :>", "\"<:\""},
      {"s %: 2", "\"%:\""},
      {"s ?\?/ 2", "\"?\?\""},
      {"_Pragma(1)", "the word _Pragma"},
      {"asm(1)", "the word asm"},
      {"import\ns", "the word import"},
      {std::string("s\0", 2), "the byte 0x00 at line 1, column 2"},
      {"s\r\n", "the byte 0x0d"},
      {"s\t", "the byte 0x09"},
      {"s + \xc3\xa4", "the byte 0xc3"},
      {" \n ", "holds blanks only"},
      {std::string(kMostCodeBytes + 1, 's'), "at most 16384 are allowed"},
  };
  for (const Refused& c : cases) {
    if (c.why.empty()) {
      EXPECT_NO_THROW(validate(with_code(c.text))) << c.text;
      continue;
    }
    expect_error(ErrorCode::kInvalidProblem, c.why, [&] { validate(with_code(c.text)); });
    expect_error(ErrorCode::kInvalidProblem, c.why, [&] { validate(with_code("s", c.text)); });
  }
  EXPECT_NO_THROW(validate(with_code("[&](float x) { return x * 2; }(s)")));
  EXPECT_NO_THROW(validate(with_code(std::string(kMostCodeBytes, 's'))));
}

/// What the compiler makes of such words differs from one compile to the next, or with the place.
TEST(CheckCode, RefusesWordsOfTheCompiler) {
  for (const char* word :
       {"__TIME__", "__DATE__", "__TIMESTAMP__", "__FILE__", "__LINE__", "__COUNTER__",
        "__INCLUDE_LEVEL__", "__BASE_FILE__", "__FUNCTION__", "__PRETTY_FUNCTION__", "__func__",
        // The file system, and what else the compiler knows of the machine.
        "__has_include", "__has_include_next", "__has_embed", "__has_cpp_attribute",
        "__has_builtin", "__has_feature", "__builtin_LINE", "__builtin_FILE", "__builtin_FUNCTION",
        "__builtin_COLUMN", "__builtin_source_location", "__nv_isClosureType", "__is_pod",
        "__asm__", "__global__", "__device__", "__attribute__", "__declspec", "__pragma",
        "__int128", "__trap", "__syncthreads", "__", "__x", "___expf"}) {
    const auto refused = [&](const std::string& score, const std::string& mask) {
      expect_error(ErrorCode::kInvalidProblem,
                   std::string("has the word ") + word + " at line 1, column 5, which is the compi",
                   [&] { validate(with_code(score, mask)); });
    };
    refused(std::string("s + ") + word, "");
    refused("s", std::string("k < ") + word + "[0]");
  }
  EXPECT_NO_THROW(validate(with_code("__expf(s) + __sinf(s) + __float2int_rn(s) + __ldg(x)")))
      << "functions of CUDA's";
}

TEST(CodeArguments, HaveNoNameThatMeansSomethingElse) {
  for (const auto& [name, why] : {std::pair("s", "every text knows"),
                                  {"head", "every text knows"},
                                  {"while", "word of C++"},
                                  {"u32", "the code around"},
                                  {"value_of_mask", "the code around"},
                                  {"UserArray", "the code around"},
                                  {"S", "the code around"},
                                  {"tanhf", "the code around"},
                                  {"attnforge_code", "the code around"},
                                  {"ATTNFORGE_DEVICE", "the code around"},
                                  {"NULL", "CUDA's"},
                                  {"warpSize", "CUDA's"},
                                  {"cudaMemcpy", "CUDA's"},
                                  {"CUDART_VERSION", "CUDA's"},
                                  {"NV_IF_TARGET", "CUDA's"},
                                  {"_NV_EVAL", "reserved"},
                                  {"a__b", "reserved"}}) {
    expect_error(ErrorCode::kInvalidProblem, why,
                 [&, n = name] { validate(with_code("s", "", std::string("int ") + n)); });
    expect_error(ErrorCode::kInvalidProblem, "choose another name",
                 [&, n = name] { validate(with_code("s", "", std::string("float* ") + n)); });
  }
  for (const char* name : {"slope", "min", "N", "null", "_a", "score", "mask", "x_", "k2"})
    EXPECT_NO_THROW(validate(with_code("s", "", std::string("int ") + name))) << name;
}

TEST(CodeArguments, AreTypesAndNamesWithExtentsAndDefaults) {
  const std::vector<CodeArgument> list = code_arguments(
      "const float* slope[num_heads_q], int window = -1024, fp16 *bias[num_heads_q*seqlen_q + 2 * "
      "seqlen_kv-1],bool* b, float x=0.5f, bf16* __restrict__ y");
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(list[0].name, "slope");
  EXPECT_TRUE(list[0].is_array);
  EXPECT_EQ(list[0].extent, "num_heads_q");
  EXPECT_EQ(list[1].value, -1024);
  EXPECT_FALSE(list[1].is_array);
  EXPECT_EQ(list[2].type, CodeArgument::Type::kFp16);
  EXPECT_EQ(list[4].value, 0.5);
  const Problem problem = with_code("s");
  EXPECT_EQ(array_elements(list[0], problem), 8);
  EXPECT_EQ(array_elements(list[2], problem), 8 * 100 + 2 * 200 - 1);
  EXPECT_GE(array_elements(list[3], problem), 8 * 3 * (100 + 200)) << "generous";
}

TEST(CodeArguments, AreAnyIntOf32Bits) {
  for (const auto& [text, value] :
       {std::pair("int n = -2147483648", -2147483648.0), {"int n = 2147483647", 2147483647.0}}) {
    EXPECT_EQ(code_arguments(text).front().value, value);
    Problem problem = with_code("s + n", "", text);
    EXPECT_NO_THROW(validate(problem)) << text;
    HostTensors host;
    set_code_arguments(problem, host, 1);
    ASSERT_EQ(host.code_words.size(), 1u);
    EXPECT_EQ(static_cast<std::int32_t>(static_cast<std::uint32_t>(host.code_words[0])), value);
  }
}

TEST(CodeArguments, AreRefusedWithThePlace) {
  const Refused cases[] = {
      {"float", "\"\" where a name is wanted"},
      {"double x", "\"double\" where a type is wanted, at line 1, column 1"},
      {"float* a, float* a", "two arguments of the name a"},
      {"float* s", "calls an argument s"},
      {"float* head", "calls an argument head"},
      {"float* attnforge_code", "calls an argument attnforge_code"},
      {"float* a__b", "calls an argument a__b"},
      {"float* return", "calls an argument return"},
      {"int a int b", "needs a comma"},
      {"int a,", "\"\" where a type is wanted"},
      {"float* a[heads]", "has the size \"heads\""},
      {"float* a[]", "brackets without"},
      {"float* a[batch", "brackets without"},
      {"float* a[batch batch]", "not a sum of products"},
      {"float* a = 1", "default to an array"},
      {"fp16 a", "only arrays have that"},
      {"int a = 1.5", "not a whole number"},
      {"int a = x", "not a whole number"},
      {"int a = 2147483648", "not a whole number of 32 bits"},
      {"int a = -2147483649", "not a whole number of 32 bits"},
      {"float a = 1e300", "not a number"},
      {"float* a[99999999999999999999]", "has the size"},
      {"int a; int b", "needs a comma"},
      {"int #a", "\"#\" where a name is wanted"},
      {" ", "holds blanks only"},
  };
  for (const Refused& c : cases) {
    expect_error(ErrorCode::kInvalidProblem, c.why, [&] { validate(with_code("s", "", c.text)); });
  }
  expect_error(ErrorCode::kInvalidProblem, "there is neither",
               [] { validate(with_code("", "", "int a")); });
  std::string many = "int a0";
  for (int i = 1; i <= static_cast<int>(kMostCodeArguments); ++i)
    many += ", int a" + std::to_string(i);
  expect_error(ErrorCode::kInvalidProblem, "more than 32",
               [&] { validate(with_code("s", "", many)); });
}

TEST(AlignedArrays, AreReadByRowsOfKeysAndNotElse) {
  const char* const args = "aligned bf16* bias, int n, float* x";
  for (const char* good : {"s + bias[(head * seqlen_q + q) * seqlen_kv + k]", "s + bias[q * n + k]",
                           "tanhf(s) * bias[((batch - 1) * 4 + 0) + k] + x[k]"})
    EXPECT_NO_THROW(validate(with_code(good, "", args))) << good;
  for (const char* bad :
       {"s", "s + bias[k]", "s + bias[k + q]", "s + bias[q * k + k]", "s + bias[int(s) + k]",
        "s + bias[(q < 3 ? 0 : n) + k]", "s + *(bias + k)", "s + bias[q + k] * bias[n + k]",
        "s + bias[n + k] + bias", "s + bias[x[q] + k]", "s + bias[q / 2 + k]",
        "k < q ? s + bias[q * n + k] : s", "s + (k < q && bias[n + k])", "s + bias[2 * (q + k)]"})
    expect_error(ErrorCode::kInvalidProblem,
                 "an array that score alone reads, once and whatever the pair is",
                 [&] { validate(with_code(bad, "", args)); });
  const char* const good = "s + bias[q * n + k]";
  expect_error(ErrorCode::kInvalidProblem, "score alone",
               [&] { validate(with_code(good, "bias[k] > 0", args)); });
  expect_error(ErrorCode::kInvalidProblem, "several aligned arrays", [&] {
    validate(with_code(good, "", "aligned bf16* bias, int n, aligned fp16* b"));
  });
  for (const char* wrong : {"aligned int* n", "aligned bool* b", "aligned float f"})
    expect_error(ErrorCode::kInvalidProblem, "aligned before what is no array",
                 [&] { validate(with_code("s", "", wrong)); });
  const Problem problem = with_code(good, "", args);
  const std::uint64_t odd[] = {4104, 7, 4100}, words[] = {4112, 7, 4100};
  EXPECT_NO_THROW(check_code_arguments(problem, words));
  expect_error(ErrorCode::kInvalidArgument,
               "code_arguments[0] is 0x1008; it is the address of bias, an aligned",
               [&] { check_code_arguments(problem, odd); });
}

Problem with_dargs(const std::string& dargs, const std::string& score = "s + slope[head]",
                   const std::string& args =
                       "float* slope[num_heads_q], int n, bf16* table[7], "
                       "int* at, bool* b") {
  Problem problem = with_code(score, "", args);
  problem.op = Op::kBackward;
  problem.dargs = dargs;
  return problem;
}

TEST(Dargs, AreNamesOfArraysOfFloatsThatTheScoreReads) {
  const std::string both = "s * table[n] + slope[head] * b[k] + at[q]";
  const Problem problem = with_dargs("table,slope", both);
  validate(problem);
  EXPECT_EQ(parse_problem(to_string(problem)), problem);
  EXPECT_EQ(places_of_dargs(problem), (std::vector<std::size_t>{2, 0}));
  EXPECT_EQ(code_words_of_run(problem), 7u);
  EXPECT_TRUE(forward_of(problem).dargs.empty());
  EXPECT_EQ(required_features(problem) & kFeatureDargs, kFeatureDargs);
  const Problem one = with_dargs("table", both), other = with_dargs("", both);
  EXPECT_NE(code_suffix(one), code_suffix(problem));
  EXPECT_NE(code_suffix(one), code_suffix(other));
  EXPECT_NE(ProblemHash()(one), ProblemHash()(other));
  EXPECT_EQ(bucket(one).dargs, "table");
  const Refused cases[] = {
      {"slop", "dargs names slop, which is not in args"},
      {"n", "dargs names n, a number of type int"},
      {"at", "dargs names at, an array of type int"},
      {"b", "dargs names b, an array of type bool"},
      {"slope slope", "\"slope\" at line 1, column 7; it is a list of names"},
      {"slope, slope", "more than once"},
      {"slope,", "ends where a name is wanted"},
      {",slope", "\",\" at line 1, column 1"},
      {"slope; b", "\";\" at line 1"},
      {" ", "ends where a name is wanted"},
      {"slope\x01", "the byte 0x01"},
  };
  for (const Refused& c : cases)
    expect_error(ErrorCode::kInvalidProblem, c.why, [&] { validate(with_dargs(c.text, both)); });
  expect_error(ErrorCode::kInvalidProblem, "which score does not read",
               [] { validate(with_dargs("table")); });
  Problem forward = with_dargs("slope");
  forward.op = Op::kForward;
  expect_error(ErrorCode::kInvalidProblem, "dargs is of bwd alone", [&] { validate(forward); });
  Problem deterministic = with_dargs("slope");
  deterministic.deterministic = true;
  expect_error(ErrorCode::kInvalidProblem, "does not go with deterministic",
               [&] { validate(deterministic); });
  std::string many = "float* a0", names = "a0", score = "s + a0[k]";
  for (int i = 1; i < 17; ++i) {
    const std::string name = "a" + std::to_string(i);
    many += ", float* " + name, names += "," + name, score += " + " + name + "[k]";
  }
  expect_error(ErrorCode::kInvalidProblem, "34 names together; at most 32",
               [&] { validate(with_dargs(names, score, many)); });
}

TEST(Dargs, SayHowOftenATextReadsThem) {
  const auto reads = [](const std::string& score) {
    return most_array_reads(with_dargs("slope", score));
  };
  EXPECT_EQ(reads("s + slope[head] * table[0]"), 1);
  EXPECT_EQ(reads("k < q ? s * slope[k] : slope[q] + slope [slope[0]]"), 4);
  EXPECT_EQ(reads("s + [&] { return slope[0]; }()"), 0) << "it may be called again";
  EXPECT_EQ(reads("s + *(slope + k)"), 0) << "another name for it";
}

TEST(Dargs, AreSumsOfQueriesWhereNoQueryChoosesThem) {
  const auto without = [](const std::string& score) {
    return dargs_without_query(with_dargs("slope, table", score));
  };
  EXPECT_TRUE(without("s + slope[head] * (k - q) + table[k]"));
  EXPECT_TRUE(without("s * slope[0] + (q < k ? 1.0f : 2.0f) * table[batch * 9 + k]"));
  EXPECT_FALSE(without("s + slope[head] * table[q]"));
  EXPECT_FALSE(without("s + slope[head] * table[k < q]"));
  EXPECT_FALSE(without("s + slope[head] * table[int(s)]"));
  EXPECT_FALSE(without("q < k ? s + slope[0] : s + table[0]")) << "not read for every pair";
  EXPECT_FALSE(without("s + (k < 3 && table[k] > 0.0f ? 1.0f : 2.0f) * slope[0]"));
  EXPECT_FALSE(without("s + slope[head] * [&] { return table[0]; }()"));
  EXPECT_FALSE(without("s + (head = q) * slope[head] + table[0]"));
  EXPECT_FALSE(without("s + slope[0] + slope[1] + slope[2] + table[0] + table[1]")) << "too many";
}

TEST(ScoreTexts, AddATermOfTheKeyOrNot) {
  const auto adds = [](const char* score, const char* heads = "") {
    Problem problem = with_code(score, "", "float* bias");
    problem.num_heads_kv = problem.num_heads_q / (*heads != 0 ? 2 : 1);
    return adds_term_of_key(problem);
  };
  EXPECT_TRUE(adds("s + bias[batch * seqlen_kv + k]"));
  EXPECT_TRUE(adds("s - logf(bias[k]) + 0.5f", "grouped"));
  EXPECT_TRUE(adds("s + bias[head]"));
  EXPECT_FALSE(adds("s + bias[head]", "grouped")) << "a tile may have rows of several heads";
  EXPECT_FALSE(adds("s + bias[k - q]"));
  EXPECT_FALSE(adds("s * bias[k]"));
  EXPECT_FALSE(adds("s")) << "its scores are not scaled";
  EXPECT_FALSE(adds("(s)"));
  EXPECT_FALSE(adds("s + (s > 0.0f)"));
  EXPECT_FALSE(adds("bias[k] + s * 2"));
}

TEST(Dargs, OfAlignedArraysHaveAnOrderWherePairsHaveElementsOfTheirOwn) {
  Problem problem = with_dargs("bias", "s + bias[((batch * 8 + head) * seqlen_q + q) * n + k]",
                               "aligned bf16* bias, int n");
  problem.deterministic = true;
  EXPECT_NO_THROW(validate(problem));
  EXPECT_TRUE(adds_rows_alone(problem));
  for (const char* shared :
       {"s + bias[(head * seqlen_q + q) * n + k]", "s + bias[(batch * 8 + head) * n + k]",
        "s + bias[(batch * seqlen_q + q) * n + k]"}) {
    problem.score = shared;
    expect_error(ErrorCode::kInvalidProblem, "dargs does not go with deterministic",
                 [&] { validate(problem); });
  }
  problem.score = "2 * (s + bias[((batch * 8 + head) * seqlen_q + q) * n + k])";
  EXPECT_FALSE(adds_rows_alone(problem));
}

TEST(AlignedArrays, AreSummandsAsTheyAreOrNot) {
  const auto adds = [](const char* score) {
    const Problem problem = with_code(score, "", "aligned bf16* bias, int n, float w");
    validate(problem);
    return adds_element(problem);
  };
  for (const char* as_it_is :
       {"s + bias[q * n + k]", "(s * w) + (bias[q * n + k]) + 1", "bias[q * n + k] - w + s"})
    EXPECT_TRUE(adds(as_it_is)) << as_it_is;
  for (const char* changed :
       {"s + 2 * bias[q * n + k]", "s - bias[q * n + k]", "s * (s + bias[q * n + k])",
        "tanhf(s + bias[q * n + k])", "s + (1 + bias[q * n + k]) * w"})
    EXPECT_FALSE(adds(changed)) << changed;
}

TEST(AlignedArrays, HaveEvenRowsWhereAnIndexGrowsWithTheQueryByTheSame) {
  const auto even = [](const char* index) {
    const Problem problem = with_code("s + bias[" + std::string(index) + "]", "",
                                      "aligned bf16* bias, int n");
    validate(problem);
    return reads_even_rows(problem);
  };
  for (const char* grows : {"((batch * 8 + head) * seqlen_q + q) * n + k", "n * (head - q) + k",
                            "head * n + k", "(q * n) * n - q + k"})
    EXPECT_TRUE(even(grows)) << grows;
  for (const char* jumps : {"q * q * n + k", "q * (n - q) + k", "(q + 8) * (head * q) + k"})
    EXPECT_FALSE(even(jumps)) << jumps;
  EXPECT_FALSE(reads_even_rows(with_code("s * slope[head]", "", "float* slope")));
}

TEST(Dargs, AreWrittenWholeWherePairsHaveElementsOfTheirOwn) {
  const Problem good = with_dargs("whole bias",
                                  "s + bias[((batch * 8 + head) * seqlen_q + q) * n + k]",
                                  "aligned bf16* bias, int n");
  EXPECT_NO_THROW(validate(good));
  EXPECT_TRUE(writes_dargs(good));
  EXPECT_EQ(parse_problem(to_string(good)), good);
  EXPECT_EQ(places_of_dargs(good), (std::vector<std::size_t>{0}));
  EXPECT_EQ(dargs_of(good).at(0).dtype, DType::kBf16);
  EXPECT_EQ(required_features(good) & kFeatureWholeDargs, kFeatureWholeDargs);
  const auto refused = [&](auto change) {
    Problem bad = good;
    change(bad);
    expect_error(ErrorCode::kInvalidProblem, "leave out the word whole", [&] { validate(bad); });
  };
  refused([](Problem& p) { p.score = "s + bias[(head * seqlen_q + q) * n + k]"; });
  refused([](Problem& p) { p.score = "s * bias[((batch * 8 + head) * seqlen_q + q) * n + k]"; });
  refused([](Problem& p) { p.softcap = 30; });
  refused([](Problem& p) { p.lengths = Lengths::kUsed; });
  EXPECT_FALSE(writes_dargs(with_dargs("whole", "s + whole[head]", "float* whole")));
}

TEST(Dargs, AreWhatARunAddsToAfterItsArguments) {
  const Problem problem = with_dargs("table, slope", "s * table[n] + slope[head]");
  const std::vector<Operand> list = operands(problem);
  ASSERT_EQ(list.back().name, "dargs");
  EXPECT_TRUE(list.back().added_to);
  EXPECT_EQ(list.back().elements, 64 + 64) << "7 and 8, each from a multiple of 64 on";
  HostTensors host;
  set_code_arguments(problem, host, 1);
  std::vector<char> memory(list.size());
  std::vector<void*> addresses;
  for (char& each : memory) addresses.push_back(&each);
  std::vector<std::uint64_t> words;
  const Tensors tensors = bound_tensors(problem, list, addresses, host, words);
  const auto begin = reinterpret_cast<std::uintptr_t>(addresses.back());
  ASSERT_EQ(words.size(), 7u);
  EXPECT_EQ(words[5], begin);
  EXPECT_EQ(words[6], begin + 64 * sizeof(float));
  const std::vector<Darg> dargs = dargs_of(problem);
  ASSERT_EQ(dargs.size(), 2u);
  EXPECT_EQ(dargs[1].name, "slope");
  EXPECT_EQ(dargs[1].elements, 8);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address_of(dargs[1], tensors)), words[6]);
  float elsewhere[2];
  float* const places[] = {&elsewhere[0], &elsewhere[1]};
  std::vector<std::uint64_t> other_words;
  const Tensors other = with_dargs_at(tensors, dargs, places, other_words);
  EXPECT_EQ(address_of(dargs[0], other), &elsewhere[0]);
  EXPECT_EQ(other.code_arguments[0], tensors.code_arguments[0]);
}

TEST(CodeText, IsPartOfKeyHashAndSymbol) {
  const Problem none = with_code(""), one = with_code("s"), other = with_code("s "),
                mask = with_code("", "s");
  for (const Problem* a : {&none, &one, &other, &mask}) {
    for (const Problem* b : {&none, &one, &other, &mask}) {
      EXPECT_EQ(*a == *b, a == b);
      EXPECT_EQ(ProblemHash()(*a) == ProblemHash()(*b), a == b);
      EXPECT_EQ(code_suffix(*a) == code_suffix(*b), a == b);
    }
    EXPECT_EQ(bucket(*a).score, a->score) << "to the byte";
  }
  EXPECT_EQ(code_suffix(none), "");
  const std::string suffix = code_suffix(one);
  EXPECT_EQ(suffix.size(), 9u);
  EXPECT_EQ(suffix.find_first_not_of("_0123456789abcdef"), suffix.npos);
  EXPECT_EQ(required_features(one) & (kFeatureScoreCode | kFeatureMaskCode), kFeatureScoreCode);
  EXPECT_EQ(required_features(mask) & (kFeatureScoreCode | kFeatureMaskCode), kFeatureMaskCode);
}

TEST(CodeText, SaysWhatItDependsOnByItsWords) {
  const Problem problem = with_code("s", "k <= q && heads[batch] > 0");
  EXPECT_TRUE(mask_depends_on(problem, "batch"));
  EXPECT_TRUE(mask_depends_on(problem, "k"));
  EXPECT_FALSE(mask_depends_on(problem, "head")) << "another word begins with it";
  EXPECT_FALSE(mask_depends_on(with_code("s"), "k"));
}

TEST(CodeText, SaysWhetherArraysAreReadByKey) {
  const std::vector<CodeArgument> arguments = code_arguments("float* a, int n");
  EXPECT_FALSE(reads_by_key("s + a[head] * (k - q)", arguments));
  EXPECT_FALSE(reads_by_key("s + k", arguments));
  EXPECT_TRUE(reads_by_key("s + a[k - q + n]", arguments));
  EXPECT_TRUE(reads_by_key("s + a[a[n + (k)]]", arguments));
  EXPECT_TRUE(reads_by_key("s + *(a + k)", arguments));
  EXPECT_TRUE(reads_by_key("s + (a + k)[0]", arguments));
  EXPECT_TRUE(reads_by_key("[&](int i) { return a[i]; }(k)", arguments));
  EXPECT_FALSE(reads_by_key("s + *(a + q)", arguments));
}

/// Any bytes are an error in words, or a problem whose text is one line that is read back.
TEST(CodeText, IsAnErrorOrComesBackWhateverIsChangedInIt) {
  std::vector<std::string> pieces = {"s",   "k",     "q",    "head", "(",       ")",   "[",
                                     "]",   "{",     "}",    "\"",   "\\",      "\\n", "\n",
                                     "#",   "//",    "/*",   "*/",   "??/",     "<:",  "slope",
                                     "+",   "*",     ",",    ";",    "#line 1", "'",   "\t",
                                     " ",   "tanhf", "\xff", "=",    "1.5f",    "<=",  "&&",
                                     "asm", "return"};
  pieces.emplace_back(1, '\0');
  std::mt19937 random(7);
  const auto below = [&](std::size_t end) { return random() % end; };
  int valid = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = i % 2 == 0 ? "s + slope[head] * (k - q)" : "k <= q || (q - k) % 4 == 0";
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
      const std::size_t at = below(text.size() + 1);
      const std::string& piece = pieces[below(pieces.size())];
      if (below(3) == 0 && at < text.size())
        text.erase(at, 1 + below(4));
      else
        text.insert(at, piece);
    }
    Problem problem = with_code(text, i % 3 == 0 ? text : "", "float* slope[num_heads_q]");
    if (text.empty()) continue;
    try {
      validate(problem);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidProblem);
      continue;
    }
    ++valid;
    const std::string line = to_string(problem);
    ASSERT_EQ(line.find_first_of("\n\r"), line.npos) << line;
    ASSERT_NE(line.back(), '\\');
    ASSERT_EQ(parse_problem(line), problem) << line;
  }
  EXPECT_GT(valid, 300);
}

TEST(AddsToScore, IsTrueOfSumsWithTheScoreAlone) {
  for (const char* text :
       {"s", "s + slope[head] * (k - q)", "s - 2 * (k > q ? 1 : 0)", "s + bias[q < 3 ? 0 : k]"})
    EXPECT_TRUE(adds_to_score(text)) << text;
  for (const char* text : {"", "2 * s", "s * 2", "s + s", "s + k > q ? 1 : 0", "s + 1, 2", "-s",
                           "s + tanhf(s)", "k < q ? s : 0", "tanhf(s)", "(s + 1) * 2"})
    EXPECT_FALSE(adds_to_score(text)) << text;
}

}  // namespace
}  // namespace attnforge
