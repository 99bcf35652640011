// user_code_compile_test.cpp - NVRTC compiles the user's texts into the families that take them:
// the ready-made ones without spills, wrong ones to an error that names the place. Needs NVRTC, but
// neither a GPU nor a driver.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "attnforge/code_texts.h"
#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/user_code/code_names.h"
#include "generator/user_code/code_tokens.h"
#include "generator/user_code/pair_terms.h"
#include "runtime/compile/compiler.h"
#include "templates/embedded.h"
#include "templates/parts/user_code/host.h"
#include "templates/registry.h"
#include "tests/support/any_text.h"
#include "tests/support/argument_fields.h"
#include "tests/support/random_choices.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

constexpr const char* kProblem = "fwd bf16 batch=2 num_heads=16:4 seqlen=8192 head_dim=128 causal";

Config first_config(const Family& family, const Problem& problem, const char* arch) {
  return candidates(family, problem, typical_device(arch)).front().config;
}

Source rendered(const char* family, const char* arch, const Problem& problem) {
  const Family& of = *find_family(family);
  return of.render(first_config(of, problem, arch), problem);
}
test::Compiled compiled(const char* family, const char* arch, const Problem& problem) {
  return test::compiled(rendered(family, arch, problem), typical_device(arch).arch);
}
void check_cpp_of(const char* family, const char* arch, const Problem& problem) {
  const Source source = rendered(family, arch, problem);
  EXPECT_THAT(source.text, ::testing::HasSubstr("__global__"))
      << "a kernel, not its functions alone";
  test::check_cpp(source, typical_device(arch).arch);
}

/// Files of built-in headers beside the NVRTC that this process has loaded.
std::vector<std::string> loaded_nvrtc_builtins() {
  std::vector<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == line.npos || line.find("libnvrtc.", path) == line.npos) continue;
    const std::filesystem::path folder = std::filesystem::path(line.substr(path)).parent_path();
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("libnvrtc-builtins.so"))
        found.push_back(entry.path());
    }
    break;
  }
  return found;
}

Problem with_code(const char* score, const char* mask = "", const char* args = "") {
  Problem problem = parse_problem(kProblem);
  problem.score = score;
  problem.mask = mask;
  problem.args = args;
  validate(problem);
  return problem;
}

/// Of the forward pass, and gradients that are added up, and written.
const CodeTexts kRows{.score = "s + bias[(head * seqlen_q + q) * seqlen_kv + k]",
                      .args = "aligned bf16* bias[num_heads_q * seqlen_q * seqlen_kv]"};

TEST(AlignedArrays, CompileWithTheirGradientsWithoutSpills) {
  const char* const dargs[] = {"", "bias", "whole bias"};
  const std::vector<std::string> said = test::compile_together(6, [&](std::size_t i) {
    Problem problem = parse_problem(
        "bwd bf16 batch=1 num_heads=16:4 seqlen=4096 head_dim=128 causal");
    if (i >= 3) problem.head_dim = problem.head_dim_v = 256;
    add_code(problem, kRows);
    problem.dargs = dargs[i % 3];
    const auto cubin = compiled("bwd_wgmma_sm90a", "90a", problem);
    constexpr int kMost = 16;  // of other versions of NVRTC than 13.0
    const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
    return spills > kMost ? fmt::format("{} spills {} bytes", to_string(problem), spills) : "";
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

/// Texts that nobody chose, of problems that nobody chose, for two GPUs.
TEST(RandomTexts, AreCppInFamiliesThatServeTheirProblems) {
  const std::vector<std::string> said = test::compile_together(12, [](std::size_t seed) {
    test::RandomChoices choices(seed);
    const test::AnyText text = test::any_text(choices);
    Problem problem = test::any_problem_for_text(choices,
                                                 seed % 2 == 0 ? Op::kForward : Op::kBackward);
    test::set_text(problem, text);
    for (const char* arch : {"90a", "80"}) {
      const auto all = candidates(registry(), problem, typical_device(arch));
      if (all.empty()) continue;
      const Candidate chosen = choices.among(all);
      try {
        test::check_cpp(chosen.family->render(chosen.config, problem), typical_device(arch).arch);
      } catch (const Error& error) {
        return fmt::format("seed {}: {}\n{}", seed, to_string(problem), error.what());
      }
    }
    return std::string();
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST(ReadyMadeTexts, CompileWithoutSpillsInBothFamilies) {
  const CodeTexts texts[] = {alibi(),     relative_bias(128),      tanh_cap(50), documents(),
                             prefix_lm(), dilated_window(1024, 4), kRows};
  struct Case {
    const char *family, *arch;
    Problem problem;
  };
  std::vector<Case> cases;
  for (const CodeTexts& text : texts) {
    Problem problem = parse_problem(kProblem);
    add_code(problem, text);
    // Two of the scores where kernels compile in half the time. A head dim of 64 has documents()
    // and dilated_window() spill on sm_90a.
    if (cases.size() / 2 == 1 || cases.size() / 2 == 2) problem.head_dim = problem.head_dim_v = 64;
    cases.push_back({"fwd_wgmma_sm90a", "90a", problem});
    // What a text becomes is the same on all of these; their limits are not.
    constexpr const char* kOlder[] = {"80", "86", "89"};
    cases.push_back({"fwd_mma_sm80", kOlder[cases.size() / 2 % 3], problem});
  }
  // Both kinds at once, after a soft cap, in packed sequences: a few registers too many, by C++
  // alone.
  const std::size_t only_cpp = cases.size();
  Problem all = parse_problem(std::string(kProblem) + " softcap=30 lse lengths=packed");
  add_code(all, alibi());
  add_code(all, prefix_lm());
  cases.push_back({"fwd_wgmma_sm90a", "90a", all});
  cases.push_back({"fwd_mma_sm80", "80", all});
  Problem fp32 = all;
  fp32.head_dim = fp32.head_dim_v = 64;
  fp32.dtype_q = fp32.dtype_k = fp32.dtype_v = fp32.dtype_o = DType::kFp32;
  cases.push_back({"fwd_regtile_f32", "80", fp32});
  cases.push_back({"fwd_naive", "80", all});

  // The registers are fitted to NVRTC 13.0. 13.5 keeps one of prefix_lm() in memory: 8 bytes.
  const bool fitted = nvrtc_facts().major == 13 && nvrtc_facts().minor == 0;
  const int most_spills = fitted ? 0 : 16;
  const std::vector<std::string> said = test::compile_together(cases.size(), [&](std::size_t i) {
    if (i >= only_cpp) {
      check_cpp_of(cases[i].family, cases[i].arch, cases[i].problem);
      return std::string();
    }
    const auto cubin = compiled(cases[i].family, cases[i].arch, cases[i].problem);
    const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
    return spills <= most_spills
               ? std::string()
               : fmt::format("{} bytes of spills: {}", spills,
                             to_string(first_config(*find_family(cases[i].family), cases[i].problem,
                                                    cases[i].arch)));
  });
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(said[i], "") << cases[i].family << " on sm_" << cases[i].arch << ": "
                           << to_string(cases[i].problem);
  }
}

/// Words with two underscores are refused but for such.
TEST(Intrinsics, OfCudaCompileInTexts) {
  const Problem problem = with_code(
      "s + __expf(k) * __fdividef(q, 3.0f) + __logf(2.0f) + __powf(2.0f, k) + __saturatef(k) + "
      "__float2int_rn(0.5f * k) + __int2float_rz(k) + __int_as_float(q) + __float_as_int(3.0f) + "
      "__fmaf_rn(2.0f, k, 1.0f) + __fadd_rz(k, 1.0f) + __frcp_rn(3.0f) + __frsqrt_rn(q + 1.0f) + "
      "__popc(k) + __clz(q) + __ffs(k) + __brev(q) + __mulhi(k, q) + __umul24(k, q) + "
      "__byte_perm(k, q, 1) + __funnelshift_l(k, q, 3) + __vadd4(k, q) + __dp4a(k, q, 1) + "
      "__usad(k, q, 1) + __hiloint2double(k, q)",
      "__ldg(document + q) == __ldg(document + k)", "int* document[seqlen_kv]");
  EXPECT_NO_THROW(check_cpp_of("fwd_naive", "80", problem));
}

/// Indexes beyond ints, in each way that texts come to kernels.
TEST(WideIndexes, CompileInAllFamilies) {
  constexpr const char* kSizes = " bf16 batch=16 num_heads=16 seqlen=4096 head_dim=128 ";
  Problem forward = parse_problem(std::string("fwd") + kSizes);
  forward.args =
      "bf16* bias[batch * num_heads_q * seqlen_q * seqlen_kv], int* document[batch * seqlen_q * "
      "num_heads_q * seqlen_kv], float factor, int stride, bool* seen[4294967296], fp16* table[9]";
  forward.score =
      "tanhf(s / 30) * 30 + factor * bias[(batch * 16 + head) * seqlen_q * seqlen_kv + q * stride "
      "+ "
      "k] + table[min(max(k - q, -4), 4) + 4] * abs(k - q) + (k <= q && 3 > k ? k * s : 1 - s) - "
      "min(document[0] * 4096, k)";
  forward.mask =
      "document[batch * seqlen_q + q] == document[k * stride] && (k - q) % 3 != 1 && seen[q * "
      "seqlen_kv + k] && q - k < stride";
  validate(forward);
  Problem backward = forward;
  backward.op = Op::kBackward;
  backward.dargs = "bias, table";
  validate(backward);
  const struct {
    const char *family, *arch;
    const Problem& problem;
  } cases[] = {{"fwd_naive", "80", forward},
               {"fwd_mma_sm80", "80", forward},
               {"fwd_wgmma_sm90a", "90a", forward},
               {"bwd_naive", "80", backward},
               {"bwd_mma_sm80", "90a", backward}};
  const std::vector<std::string> said = test::compile_together(
      std::size(cases), [&](std::size_t i) -> std::string {
        check_cpp_of(cases[i].family, cases[i].arch, cases[i].problem);
        return "";
      });
  for (std::size_t i = 0; i < said.size(); ++i)
    EXPECT_EQ(said[i], "") << cases[i].family << " on sm_" << cases[i].arch;
  // One index, more of whose products are of 64 bits than where ints do.
  forward.score = "s + bias[(batch * 16 + head) * seqlen_q * seqlen_kv + q * seqlen_kv + k]";
  forward.mask = "";
  const auto wide_products = [](const Problem& problem) {
    const std::string ptx = test::compiled_ptx(rendered("fwd_naive", "80", problem),
                                               typical_device("80").arch);
    int count = 0;
    for (std::size_t at = 0; (at = ptx.find("mul.lo.s64", at)) != ptx.npos; ++at) ++count;
    for (std::size_t at = 0; (at = ptx.find("mad.lo.s64", at)) != ptx.npos; ++at) ++count;
    return count;
  };
  Problem narrow = forward;
  narrow.batch = 2;
  narrow.args = "bf16* bias[batch * num_heads_q * seqlen_q * seqlen_kv]";
  EXPECT_GT(wide_products(forward), wide_products(narrow));
}

/// Whatever the lines around a text name is either refused as a name of an argument or may be one:
/// nothing that they need is hidden.
TEST(ArgumentNames, HideNothingThatTheCodeAroundTextsNeeds) {
  Problem probe = parse_problem(
      "bwd bf16 num_heads=16 seqlen=4096 head_dim=128 score=\"s * tanhf(s) + x[q]\" mask=\"y[q] == "
      "y[k] && (k + q) % z\" args=\"float* x[seqlen_q], int* y[4294967296], int z, float f, fp16* "
      "g, "
      "bf16* h, bool* b\" dargs=x");
  const PairTerms terms = pair_terms(probe);
  const std::string lines = struct_of_code(probe, probe.mask, &terms, true);
  std::vector<std::string> numbers, arrays;
  for (const CodeToken& token : code_tokens(lines)) {
    const std::string name(token.text);
    if (!token.is_name() || !why_no_argument(name).empty() || name.size() == 1 ||
        std::ranges::find(numbers, "int " + name) != numbers.end())
      continue;
    numbers.push_back("int " + name);
    arrays.push_back("int* " + name + "[4294967296]");
  }
  EXPECT_GT(numbers.size(), 10u);
  constexpr std::size_t kAtOnce = 24;
  std::vector<Problem> problems;
  for (const std::vector<std::string>* list : {&numbers, &arrays}) {
    for (std::size_t begin = 0; begin < list->size(); begin += kAtOnce) {
      Problem& problem = problems.emplace_back(probe);
      problem.mask = "x[k] < (q ^ k)";
      for (std::size_t i = begin; i < std::min(list->size(), begin + kAtOnce); ++i) {
        problem.args += ", " + (*list)[i];
        const std::string name = numbers[i].substr(4);
        problem.mask += " + " + name + (list == &arrays ? "[k]" : "");
      }
      validate(problem);
    }
  }
  const std::vector<std::string> said = test::compile_together(
      problems.size(), [&](std::size_t i) -> std::string {
        check_cpp_of("bwd_mma_sm80", "80", problems[i]);
        return "";
      });
  for (std::size_t i = 0; i < said.size(); ++i) EXPECT_EQ(said[i], "") << problems[i].args;
}

/// By what its library of built-in headers defines, and by our own headers.
TEST(ArgumentNames, AreNoMacrosOfTheCompilerAndOfTemplates) {
  std::vector<std::string> macros;
  const auto add_defined = [&](std::string_view text) {
    constexpr std::string_view kDefine = "#define ";
    for (std::size_t at = text.find(kDefine); at != text.npos; at = text.find(kDefine, at)) {
      at += kDefine.size();
      const std::size_t end = text.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", at);
      if (end != text.npos && end > at) macros.emplace_back(text.substr(at, end - at));
    }
  };
  for (const Header& header : embedded_headers()) add_defined(header.text);
  EXPECT_GT(macros.size(), 5u) << "of ours";
  const std::size_t ours = macros.size();
  nvrtc_facts();  // loads it
  for (const std::string& path : loaded_nvrtc_builtins()) {
    std::ifstream file(path, std::ios::binary);
    add_defined(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (macros.size() == ours) GTEST_SKIP() << "NVRTC's built-in headers are not beside it";
  EXPECT_GT(macros.size(), ours + 100);
  for (const std::string& macro : macros) EXPECT_NE(why_no_argument(macro), "") << macro;
}

/// Of texts, blocks and a soft cap at once, by each kernel of backward.
TEST(BackwardTexts, CompileWithTheirDerivativesInAllFamilies) {
  Problem all = parse_problem(
      "bwd bf16 batch=2 num_heads=8:2 seqlen=4096 head_dim=128 softcap=30 lengths=used "
      "blocks=64:32 "
      "mask_bits mask_heads=2");
  all.score =
      "(k > q ? s : 0.5f * (k - q) + min(s, 0.0f)) + sqrtf(fabsf(s) + 1) * bias[k] - s / 3 + "
      "tanhf(s / 30) * expf(-s) + powf(s, 2) + [&] { auto x = s + k; x *= 2; return -x; }()";
  all.mask = "(q + k) % 3 != 0 || bias[k] > 0";
  all.args = "float* bias[seqlen_kv]";
  validate(all);
  Problem alone = all;
  alone.deterministic = true;  // a kernel of dQ beside that of dK and dV
  Problem wide = all;          // warpgroups hand each other products with the text's slope
  wide.head_dim = wide.head_dim_v = 256;
  wide.softcap = 0;
  const struct {
    const char *family, *arch;
    const Problem& problem;
  } cases[] = {{"bwd_naive", "80", all},
               {"bwd_mma_sm80", "80", alone},
               {"bwd_wgmma_sm90a", "90a", all},
               {"bwd_wgmma_sm90a", "90a", wide}};
  const std::vector<std::string> said = test::compile_together(
      std::size(cases), [&](std::size_t i) -> std::string {
        check_cpp_of(cases[i].family, cases[i].arch, cases[i].problem);
        return "";
      });
  for (std::size_t i = 0; i < said.size(); ++i)
    EXPECT_EQ(said[i], "") << cases[i].family << " " << to_string(cases[i].problem);
}

/// Arrays whose gradients are wanted, read in branches, in loops and by each other, beside others.
TEST(Dargs, CompileInBothFamiliesAndInTheOracle) {
  const auto problem_of = [](const char* words, const char* score, const char* args,
                             const char* dargs) {
    Problem problem = parse_problem(words);
    problem.score = score, problem.args = args, problem.dargs = dargs;
    validate(problem);
    return problem;
  };
  const Problem slopes = problem_of("bwd bf16 num_heads=8:2 seqlen=512 head_dim=128 causal",
                                    "s + slope[head] * (k - q)", "float* slope[num_heads_q]",
                                    "slope");
  const Problem keys = problem_of("bwd bf16 num_heads=8:2 seqlen=512 head_dim=64",
                                  "s * a[head] + a[head] * a[k]", "float* a", "a");
  const Problem loop = problem_of(
      "bwd bf16 num_heads=8:2 seqlen=512 head_dim=128 softcap=30 lengths=used",
      "[&] { auto x = s * 1; for (int i = 0; i < n; ++i) x += a[i] * k; return x; }()",
      "float* a, int n", "a");
  const Problem all = problem_of(
      "bwd bf16 batch=2 num_heads=8:2 seqlen=4096 head_dim=64 softcap=30 lengths=used blocks=64:32 "
      "mask_bits mask_heads=2 sinks",
      "(k > q ? s : 0.5f * (k - q) * a[head] + min(s, b[k])) + sqrtf(fabsf(a[at[q]]) + 1) - s / "
      "b[0] + tanhf(s * a[1]) + powf(s, 2) + [&] { auto x = s + k; for (int i = 0; i < n; ++i) x "
      "*= "
      "a[i]; return -x; }()",
      "float* a, fp16* b, int* at, int n", "a, b");
  const struct {
    const char *family, *arch;
    const Problem& problem;
    bool whole;  // to machine code, which must not spill
  } cases[] = {{"bwd_mma_sm80", "80", slopes, true},
               {"bwd_wgmma_sm90a", "90a", keys, true},
               {"bwd_mma_sm80", "90", loop, false},
               {"bwd_naive", "80", all, false}};
  const std::vector<std::string> said = test::compile_together(
      std::size(cases), [&](std::size_t i) -> std::string {
        const auto& [family, arch, problem, whole] = cases[i];
        if (!whole) {
          check_cpp_of(family, arch, problem);
          return "";
        }
        const auto cubin = compiled(family, arch, problem);
        return cubin.spill_store_bytes == 0 ? "" : "it spills";
      });
  for (std::size_t i = 0; i < said.size(); ++i)
    EXPECT_EQ(said[i], "") << cases[i].family << " " << to_string(cases[i].problem);
}

/// The compiler refuses the text, and says where.
void expect_wrong_score(const Problem& problem) {
  try {
    check_cpp_of("bwd_naive", "80", problem);
    ADD_FAILURE() << problem.score << " compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCompile);
    EXPECT_THAT(error.what(), testing::HasSubstr("score, line 1, column ")) << problem.score;
  }
}

/// What would lose the derivative by an array, or that of one, is an error and not one of 0.
TEST(Dargs, AreRefusedWhereTheyAreNotReadByBrackets) {
  for (const char* score : {"s + *(a + k)", "s * float(a[k])",
                            "s + [](const float* x) { return x[0]; }(a)", "s + ldexpf(a[0], 2)"}) {
    Problem problem = parse_problem("bwd bf16 num_heads=2 seqlen=512 head_dim=64");
    problem.score = score, problem.args = "float* a", problem.dargs = "a";
    expect_wrong_score(problem);
  }
}

/// A text that makes a float of the score has lost its derivative: an error, and not one of 0.
TEST(BackwardTexts, AreRefusedWhereTheDerivativeIsLost) {
  for (const char* score : {"float(s) * 2", "[](float x) { return x * x; }(s)", "ldexpf(s, 2)"}) {
    Problem problem = parse_problem("bwd bf16 num_heads=2 seqlen=512 head_dim=64");
    problem.score = score;
    expect_wrong_score(problem);
  }
}

/// Positions are ints wherever one may stand, and floats without a conversion for each key.
TEST(Positions, TakePartInAllThatIntsDo) {
  const Problem problem = with_code(
      "k > q ? s : 0.5f * (k - q) + min(s, 0.0f) + float(k) + fabsf(k) + 1.0f / (q - k) - k * 2.0f "
      "+ "
      "(k - q) / 3.0f + (2 - k) * 0.25 + (k + q) * 0.5f + table[k] + a[min(k, 3)] + (k << 1) + -k",
      "k < min(q, 4) && max(k, q) > 2 && abs(k - q) < 5 && k % 2 == 0 && !(k & 4) && b[k]",
      "float* table[seqlen_kv], fp16* a, bool* b");
  EXPECT_NO_THROW(check_cpp_of("fwd_mma_sm80", "80", problem));
  EXPECT_NO_THROW(check_cpp_of("fwd_naive", "80", problem));
}

/// The offset of the member `code` is where the launch puts it, after any other part.
TEST(CodeParams, LieWhereTheLaunchPutsThem) {
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_naive"}) {
    for (const char* lengths : {"fixed", "packed", "used"}) {
      Problem problem = parse_problem(std::string(kProblem) + " lengths=" + lengths);
      add_code(problem, {.score = "s * a + b * c", .args = "float a, float b, float c"});
      const Family& family = *find_family(name);
      const DeviceFacts& device = typical_device("90a");
      const Config config = first_config(family, problem, "90a");
      const Launch launch = family.launch(config, problem, device);
      const LaunchStep& step = launch.steps[own_step(launch)];
      const std::vector<std::size_t> places = test::places_of(code_argument(problem), step);
      ASSERT_EQ(places.size(), 1u);
      EXPECT_EQ(code_argument(problem).bytes, 3 * sizeof(std::uint64_t));
      Source source = family.render(config, problem);
      const std::size_t begin = source.entry.rfind("const __grid_constant__ ");
      const std::string type = source.entry.substr(begin, source.entry.find(" p)", begin) - begin);
      source.text = source.text.substr(0, source.text.rfind("extern \"C\" __global__")) +
                    "extern \"C\" __global__ void probe(" + type +
                    " p, u64* to) { to[0] = p.code.words[0]; to[1] = p.code.words[2]; }\n";
      const std::string ptx = test::compiled_ptx(source, device.arch);
      EXPECT_THAT(ptx, testing::HasSubstr(fmt::format("[probe_param_0+{}]", places[0]))) << type;
      EXPECT_THAT(ptx, testing::HasSubstr(fmt::format("[probe_param_0+{}]", places[0] + 16)));
    }
  }
}

TEST(CodeThatDoesNotCompile, IsShownWithLineAndColumn) {
  const auto message = [](const Problem& problem) -> std::string {
    try {
      check_cpp_of("fwd_mma_sm80", "80", problem);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCompile);
      return error.what();
    }
    return "it compiled";
  };
  using testing::HasSubstr;
  EXPECT_THAT(message(with_code("s + slop * 2.0f")),
              HasSubstr("score, line 1, column 5: identifier \"slop\" is undefined\n"
                        "  s + slop * 2.0f\n"
                        "      ^"));
  EXPECT_THAT(message(with_code("s +\n  (k - ) * 2.0f")),
              HasSubstr("score, line 2, column 8: expected an expression"));
  EXPECT_THAT(message(with_code("s", "k <= q &&\n\n  nothing(k)")),
              HasSubstr("mask, line 3, column 3: identifier \"nothing\" is undefined"));
  // What is missing at the end, and what the value is, are the text's mistakes too.
  EXPECT_THAT(message(with_code("s +")),
              HasSubstr("score, line 1, column 5: expected an expression\n"
                        "  s +\n"
                        "      ^"));
  EXPECT_THAT(message(with_code("s", "k <= q &&\n k > 1 &&")),
              HasSubstr("mask, line 2, column 11"));
  EXPECT_TRUE(message(with_code("slope", "", "float* slope"))
                  .ends_with("score, line 1, column 1: the text's value is not a number"));
  EXPECT_TRUE(message(with_code("s", "[&] {}()"))
                  .ends_with("mask, line 1, column 1: the text's value is not a number"));
  EXPECT_THAT(message(with_code("s; return s")), HasSubstr("score, line 1, column 2: expected a"));
  EXPECT_THAT(message(with_code("s */ 2 /")), HasSubstr("score, line 1"));
}

/// Texts that validate() lets through, to the compiler: an error, or C++.
TEST(AnyText, IsAnErrorOrValidCpp) {
  const std::vector<std::string> pieces = {
      "s",        "k",          "q",    "head", "+ 1",     "(s)", "tanhf(s)",
      "slope",    "[k]",        "* 2.", "- q",  "? s : k", ", 1", "[&] { return s; }()",
      "__LINE__", "UserCode()", ";"};
  std::mt19937 random(11);
  std::vector<Problem> problems;
  while (problems.size() < 24) {
    Problem problem = with_code("s + slope[head] * (k - q)", "k <= q", "float* slope[num_heads_q]");
    std::string& text = problems.size() % 2 == 0 ? problem.score : problem.mask;
    const std::size_t at = text.find(' ', random() % text.size());
    if (at != text.npos) text.insert(at, " " + pieces[random() % pieces.size()]);
    problems.push_back(problem);
  }
  const std::vector<std::string> said = test::compile_together(
      problems.size(), [&](std::size_t i) -> std::string {
        check_cpp_of("fwd_naive", "80", problems[i]);
        return "";
      });
  int compiled_ones = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    compiled_ones += said[i].empty() ? 1 : 0;
    if (said[i].empty()) continue;
    EXPECT_THAT(said[i], testing::HasSubstr("the problem's code does not compile"))
        << to_string(problems[i]);
  }
  EXPECT_GT(compiled_ones, 2);
}

}  // namespace
}  // namespace attnforge
