#include "tests/conformance/code_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "generator/formats/half.h"
#include "generator/user_code/user_code.h"
#include "tests/support/text_tree.h"

namespace attnforge::test {
namespace {

// Arguments of all cases: arrays and numbers by the names that the texts use.
constexpr int kReach = 5, kWindow = 40;
float slope_of(std::int64_t head) { return 0.5f / static_cast<float>(1 + head); }
float bias_of(std::int64_t head, std::int64_t at) {
  return 0.25f * static_cast<float>((head * 7 + at * 3) % 9 - 4);
}
int document_of(std::int64_t batch, std::int64_t at) {
  return static_cast<int>((at + 13 * batch) / 37);
}
int prefix_of(std::int64_t batch) { return static_cast<int>(9 + 20 * batch); }

constexpr int kWeights = 1024, kHalves = 512;
void expect_in(const char* array, std::int64_t at, int elements) {
  if (at < 0 || at >= elements) ADD_FAILURE() << array << " has no element " << at;
}
float weight_of(std::int64_t at) {
  expect_in("weights", at, kWeights);
  return 0.125f * static_cast<float>((at * 5) % 9 - 4);
}
float half_of(std::int64_t at) {
  expect_in("halves", at, kHalves);
  return 0.5f * static_cast<float>(at % 3);
}

/// Of aligned arrays, with rows of a multiple of 16 bytes.
float pair_of(std::int64_t batch, std::int64_t head, std::int64_t q, std::int64_t k) {
  return 0.25f * static_cast<float>((batch * 11 + head * 7 + q * 5 + k * 3 + q * k % 4) % 15 - 7);
}
std::int64_t columns_of(const Problem& p) { return (p.seqlen_kv + 7) / 8 * 8; }

/// Elements for each pair, of batch 0 and head 0 alone without `heads`, after which nothing is 0.
template <class T, class Convert>
std::vector<T> pairs_of(const Problem& p, bool heads, const Convert& convert) {
  std::vector<T> values;
  for (std::int64_t b = 0; b < (heads ? p.batch : 1); ++b)
    for (std::int64_t h = 0; h < (heads ? p.num_heads_q : 1); ++h)
      for (std::int64_t q = 0; q < p.seqlen_q; ++q)
        for (std::int64_t k = 0; k < columns_of(p); ++k)
          values.push_back(convert(k < p.seqlen_kv ? pair_of(b, h, q, k) : 99.0f));
  return values;
}

const std::vector<const char*> kUsual = {
    "fwd bf16 batch=2 num_heads=4:2 seqlen=300 head_dim=128 causal lse",
    "fwd fp16 batch=2 num_heads=4 seqlen=77:333 head_dim=64 lse",
    "fwd bf16 batch=2 num_heads=8:1 seqlen=5:200 head_dim=128 lse",
    "fwd fp32 batch=2 num_heads=2 seqlen=70:130 head_dim=64 lse",
    "fwd bf16 batch=3 num_heads=4 seqlen=200 head_dim=64 lengths=packed lse",
    "fwd bf16 batch=3 num_heads=2 seqlen=150:333 head_dim=72 window_left=100 lengths=used",
    "fwd fp16 batch=6 num_heads=4:2 seqlen=5:200 head_dim=64 lengths=used page_size=16 lse",
};

/// The derivative of a score that something is added to.
double one(double, const CodePair&) { return 1; }
double slope_of_cap(double s, double cap) {
  const double x = std::tanh(s / cap);
  return 1 - x * x;
}

}  // namespace

void PrintTo(const CodeCase& c, std::ostream* out) { *out << c.name; }

/// By the names in problem.args, in their order there.
RunArguments arguments_of(const Problem& p) {
  RunArguments run;
  for (const CodeArgument& argument : code_arguments(p.args)) {
    if (argument.name == "slope") {
      std::vector<float> values;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h) values.push_back(slope_of(h));
      run.add_array(values);
    } else if (argument.name == "relative_bias") {
      std::vector<float> values;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h)
        for (int at = 0; at <= 2 * kReach; ++at) values.push_back(bias_of(h, at));
      run.add_array(values);
    } else if (argument.name == "prefix") {
      std::vector<int> values;
      for (std::int64_t b = 0; b < p.batch; ++b) values.push_back(prefix_of(b));
      run.add_array(values);
    } else if (argument.name == "document_q" || argument.name == "document_kv") {
      const std::int64_t length = argument.name == "document_q" ? p.seqlen_q : p.seqlen_kv;
      std::vector<int> values;
      for (std::int64_t b = 0; b < p.batch; ++b)
        for (std::int64_t i = 0; i < length; ++i) values.push_back(document_of(b, i));
      run.add_array(values);
    } else if (argument.name == "weights") {
      std::vector<float> values;
      for (int i = 0; i < kWeights; ++i) values.push_back(weight_of(i));
      run.add_array(values);
    } else if (argument.name == "halves") {
      constexpr std::uint16_t kBits[] = {0, 0x3800, 0x3c00};
      std::vector<std::uint16_t> values;
      for (int i = 0; i < kHalves; ++i) values.push_back(kBits[i % 3]);
      run.add_array(values);
    } else if (argument.name == "pairs_bf16") {
      run.add_array(pairs_of<std::uint16_t>(p, true, float_to_bf16));
    } else if (argument.name == "pairs_fp16") {
      run.add_array(pairs_of<std::uint16_t>(p, false, float_to_fp16));
    } else if (argument.name == "pairs_fp32") {
      run.add_array(pairs_of<float>(p, true, [](float x) { return x; }));
    } else if (argument.name == "squares") {
      std::vector<std::uint16_t> values(4 * 4 * 304 * 336);
      for (CodePair at; at.batch < 4; ++at.batch)
        for (at.head = 0; at.head < 4; ++at.head)
          for (at.q = 0; at.q < 304; ++at.q)
            for (at.k = 0; at.k < 336; ++at.k)
              values.at(static_cast<std::size_t>(place_in_squares(at))) = float_to_bf16(
                  pair_of(at.batch, at.head, at.q, at.k));
      run.add_array(values);
    } else if (argument.name == "columns") {
      run.words.push_back(static_cast<std::uint64_t>(columns_of(p)));
    } else if (argument.name == "rows") {
      run.words.push_back(static_cast<std::uint64_t>(p.seqlen_q));
    } else if (argument.name == "heads") {
      run.words.push_back(static_cast<std::uint64_t>(p.num_heads_q));
    } else if (argument.name == "window") {
      run.words.push_back(kWindow | std::uint64_t{0xdeadbeef} << 32);  // upper half: anything
    } else if (argument.name == "factor") {
      run.words.push_back(std::bit_cast<std::uint32_t>(1.5f));
    } else {
      ADD_FAILURE() << "no argument " << argument.name;
    }
  }
  return run;
}

RunArguments arguments_of_text(const Problem& p) {
  RunArguments run;
  for (const CodeArgument& argument : code_arguments(p.args)) {
    const std::vector<std::byte> bytes = text_argument(argument.name).bytes();
    if (argument.is_array)
      run.add_array(bytes);
    else
      std::memcpy(&run.words.emplace_back(), bytes.data(), bytes.size());
  }
  return run;
}

void PrintTo(const DargsCase& c, std::ostream* out) { *out << c.name; }

std::int64_t place_in_squares(const CodePair& p) {
  return ((p.batch * 4 + p.head) * 304 + p.q) * 336 + p.k;
}

const std::vector<const char*>& dargs_problems() {
  static const std::vector<const char*> kProblems = {
      "bwd bf16 batch=2 num_heads=4:2 seqlen=300 head_dim=128 causal",
      "bwd fp16 batch=2 num_heads=4 seqlen=77:333 head_dim=64 dlse accumulate",
      "bwd bf16 batch=1 num_heads=4:2 seqlen=130 head_dim=256 causal gradients=fp32",
      "bwd fp32 batch=2 num_heads=2 seqlen=70:130 head_dim=64",
      "bwd bf16 batch=3 num_heads=4 seqlen=200 head_dim=64 lengths=packed causal",
      "bwd bf16 batch=3 num_heads=2 seqlen=150:333 head_dim=72 window_left=100 lengths=used sinks",
      "bwd bf16 batch=1 num_heads=4 seqlen=200 head_dim=64 softcap=3 causal",
      "bwd bf16 batch=2 num_heads=4:2 seqlen=300 head_dim=64 blocks=64 mask_bits",
  };
  return kProblems;
}

namespace {

using AddRead = CodeFunctions::AddRead;
const std::vector<DargsCase> kDargsCases = {
    {"SlopeOfHeads",
     alibi(),
     "slope",
     {.score = [](double s, const CodePair& p) { return s + slope_of(p.head) * double(p.k - p.q); },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads = [](double, const CodePair& p,
                        const AddRead& add) { add(0, p.head, double(p.k - p.q)); }}},
    {"TableByDistance",
     relative_bias(kReach),
     "relative_bias",
     {.score =
          [](double s, const CodePair& p) {
            return s +
                   bias_of(p.head, std::clamp<std::int64_t>(p.k - p.q, -kReach, kReach) + kReach);
          },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads =
          [](double, const CodePair& p, const AddRead& add) {
            add(0,
                p.head * (2 * kReach + 1) + std::clamp<std::int64_t>(p.k - p.q, -kReach, kReach) +
                    kReach,
                1);
          }}},
    {"SeveralReadsOfOne",
     {.score = "s * (1 + weights[head]) + weights[q % 50] * weights[k]",
      .args = "float* weights[1024]"},
     "weights",
     {.score =
          [](double s, const CodePair& p) {
            return s * (1 + weight_of(p.head)) + double{weight_of(p.q % 50)} * weight_of(p.k);
          },
      .mask = {},
      .score_derivative = [](double, const CodePair& p) { return 1 + weight_of(p.head); },
      .dargs = {},
      .score_reads =
          [](double s, const CodePair& p, const AddRead& add) {
            add(0, p.head, s);
            add(0, p.q % 50, weight_of(p.k));
            add(0, p.k, weight_of(p.q % 50));
          }}},
    {"InBranches",
     {.score = "(k < q ? s + weights[batch * 100 + head] : tanhf(s * weights[k])) + slope[head] * "
               "0.5f",
      .mask = "(q + k) % 3 != 0",
      .args = "float* weights[1024], float* slope[num_heads_q]"},
     "slope, weights",
     {.score =
          [](double s, const CodePair& p) {
            return (p.k < p.q ? s + weight_of(p.batch * 100 + p.head)
                              : std::tanh(s * weight_of(p.k))) +
                   slope_of(p.head) * 0.5;
          },
      .mask = [](const CodePair& p) { return (p.q + p.k) % 3 != 0; },
      .score_derivative =
          [](double s, const CodePair& p) {
            const double x = std::tanh(s * weight_of(p.k));
            return p.k < p.q ? 1 : (1 - x * x) * weight_of(p.k);
          },
      .dargs = {},
      .score_reads =
          [](double s, const CodePair& p, const AddRead& add) {
            add(0, p.head, 0.5);
            if (p.k < p.q) return add(1, p.batch * 100 + p.head, 1);
            const double x = std::tanh(s * weight_of(p.k));
            add(1, p.k, (1 - x * x) * s);
          }}},
    {"InALoop",
     {.score = "[&] { auto x = s * 1; for (int i = 0; i < 1 + k % 3; ++i) x += weights[i] * "
               "float(q % (i + 2)); return x; }()",
      .args = "float* weights[1024]"},
     "weights",
     {.score =
          [](double s, const CodePair& p) {
            for (std::int64_t i = 0; i < 1 + p.k % 3; ++i)
              s += weight_of(i) * double(p.q % (i + 2));
            return s;
          },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads =
          [](double, const CodePair& p, const AddRead& add) {
            for (std::int64_t i = 0; i < 1 + p.k % 3; ++i) add(0, i, double(p.q % (i + 2)));
          }}},
    {"OfRows",
     {.score = "s + 2 * squares[((batch * 4 + head) * 304 + q) * 336 + k]",
      .args = "aligned bf16* squares[1634304]"},
     "squares",
     {.score = [](double s,
                  const CodePair& p) { return s + 2 * pair_of(p.batch, p.head, p.q, p.k); },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads = [](double, const CodePair& p,
                        const AddRead& add) { add(0, place_in_squares(p), 2); }}},
    {"OfRowsWhole",
     {.score = "s + 2 * squares[((batch * 4 + head) * 304 + q) * 336 + k]",
      .args = "aligned bf16* squares[1634304]"},
     "whole squares",
     {.score = [](double s,
                  const CodePair& p) { return s + 2 * pair_of(p.batch, p.head, p.q, p.k); },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads = [](double, const CodePair& p,
                        const AddRead& add) { add(0, place_in_squares(p), 2); }}},
    {"OfRowsWholeAsTheyAre",
     {.score = "s + squares[((batch * 4 + head) * 304 + q) * 336 + k]",
      .args = "aligned bf16* squares[1634304]"},
     "whole squares",
     {.score = [](double s, const CodePair& p) { return s + pair_of(p.batch, p.head, p.q, p.k); },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads = [](double, const CodePair& p,
                        const AddRead& add) { add(0, place_in_squares(p), 1); }}},
    {"WithoutTheQuery",
     {.score = "s * weights[head] + weights[100 + k] * weights[batch]",
      .args = "float* weights[1024]"},
     "weights",
     {.score =
          [](double s, const CodePair& p) {
            return s * weight_of(p.head) + double{weight_of(100 + p.k)} * weight_of(p.batch);
          },
      .mask = {},
      .score_derivative = [](double, const CodePair& p) { return double{weight_of(p.head)}; },
      .dargs = {},
      .score_reads =
          [](double s, const CodePair& p, const AddRead& add) {
            add(0, p.head, s);
            add(0, 100 + p.k, weight_of(p.batch));
            add(0, p.batch, weight_of(100 + p.k));
          }}},
    {"OfKeys",
     {.score = "s + expf(weights[batch * 340 + k])", .args = "float* weights[1024]"},
     "weights",
     {.score = [](double s,
                  const CodePair& p) { return s + std::exp(weight_of(p.batch * 340 + p.k)); },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads =
          [](double, const CodePair& p, const AddRead& add) {
            add(0, p.batch * 340 + p.k, std::exp(weight_of(p.batch * 340 + p.k)));
          }}},
    {"OfHalves",
     {.score = "s + halves[q] * 0.25f", .args = "fp16* halves[512]"},
     "halves",
     {.score = [](double s, const CodePair& p) { return s + half_of(p.q) * 0.25; },
      .mask = {},
      .score_derivative = one,
      .dargs = {},
      .score_reads = [](double, const CodePair& p, const AddRead& add) { add(0, p.q, 0.25); }}},
};

}  // namespace

const std::vector<DargsCase>& dargs_cases() { return kDargsCases; }

namespace {

const std::vector<CodeCase> kCodeCases = {
    {"Alibi",
     alibi(),
     {[](double s, const CodePair& p) { return s + slope_of(p.head) * double(p.k - p.q); },
      {},
      one},
     kUsual},
    {"RelativeBias",
     relative_bias(kReach),
     {[](double s, const CodePair& p) {
        return s + bias_of(p.head, std::clamp<std::int64_t>(p.k - p.q, -kReach, kReach) + kReach);
      },
      {},
      one},
     kUsual},
    {"TanhCap",
     tanh_cap(2),
     {[](double s, const CodePair&) { return 2 * std::tanh(s / 2); },
      {},
      [](double s, const CodePair&) { return slope_of_cap(s, 2); }},
     kUsual},
    // In backward warpgroups hand each other products with the slope.
    {"TanhCapOfWideHeads",
     tanh_cap(2),
     {[](double s, const CodePair&) { return 2 * std::tanh(s / 2); },
      {},
      [](double s, const CodePair&) { return slope_of_cap(s, 2); }},
     {"fwd bf16 batch=2 num_heads=4:2 seqlen=300 head_dim=256 causal lse",
      "fwd fp16 batch=2 num_heads=4:2 seqlen=77:333 head_dim=192:128 lse",
      "fwd bf16 batch=3 num_heads=2 seqlen=200 head_dim=136 lengths=packed lse"}},
    {"TanhCapFarAway",
     tanh_cap(50),
     {[](double s, const CodePair&) { return 50 * std::tanh(s / 50); },
      {},
      [](double s, const CodePair&) { return slope_of_cap(s, 50); }},
     kUsual},
    {"Documents",
     documents(),
     {{}, [](const CodePair& p) { return document_of(p.batch, p.q) == document_of(p.batch, p.k); }},
     {kUsual.begin(), kUsual.begin() + 4}},
    {"PrefixLm",
     prefix_lm(),
     {{},
      [](const CodePair& p) {
        return p.k <= p.q + p.seqlen_kv - p.seqlen_q || p.k < prefix_of(p.batch);
      }},
     kUsual},
    {"DilatedWindow",
     dilated_window(60, 3),
     {{}, [](const CodePair& p) { return std::abs(p.k - p.q) <= 60 && (p.k - p.q) % 3 == 0; }},
     kUsual},
    {"NothingIsSeenByOddQueries",
     {.mask = "q % 2 == 0"},
     {{}, [](const CodePair& p) { return p.q % 2 == 0; }},
     kUsual},
    {"SinksBesideAWindowOfTheRun",
     {.mask = "k < 5 || abs(q - k) < window", .args = "int window"},
     {{}, [](const CodePair& p) { return p.k < 5 || std::abs(p.q - p.k) < kWindow; }},
     kUsual},
    {"TermsJoinedInAnyWay",
     {.mask = "!(k >= 40 && q % 3 == 0) && (k <= q || (q + k) % 5 == 0)"},
     {{},
      [](const CodePair& p) {
        return !(p.k >= 40 && p.q % 3 == 0) && (p.k <= p.q || (p.q + p.k) % 5 == 0);
      }},
     kUsual},
    {"Numbers",
     {.score = "s * factor", .mask = "q - k < window", .args = "float factor, int window"},
     {[](double s, const CodePair&) { return s * 1.5; },
      [](const CodePair& p) { return p.q - p.k < kWindow; },
      [](double, const CodePair&) { return 1.5; }},
     kUsual},
    {"TanhByAProduct",  // which is not told from other texts
     {.score = "tanhf(s * 0.5f) * 2"},
     {[](double s, const CodePair&) { return 2 * std::tanh(s / 2); },
      {},
      [](double s, const CodePair&) { return slope_of_cap(s, 2); }},
     kUsual},
    {"ManyFunctions",
     {.score = "(s > 0.5f ? s : s * 0.75f + 0.125f) + sqrtf(fabsf(s) + 1) - fmaxf(s, -0.25f) * "
               "float(k % 3) / 8 + expf(-s * s)"},
     {[](double s, const CodePair& p) {
        return (s > 0.5 ? s : s * 0.75 + 0.125) + std::sqrt(std::abs(s) + 1) -
               std::max(s, -0.25) * double(p.k % 3) / 8 + std::exp(-s * s);
      },
      {},
      [](double s, const CodePair& p) {
        return (s > 0.5 ? 1 : 0.75) + (s > 0 ? 0.5 : -0.5) / std::sqrt(std::abs(s) + 1) -
               (s >= -0.25 ? double(p.k % 3) / 8 : 0) - 2 * s * std::exp(-s * s);
      }},
     kUsual},
    {"TextInPartialBlocks",
     {.score = "s * factor", .mask = "(q + k) % 3 != 0", .args = "float factor"},
     {[](double s, const CodePair&) { return s * 1.5; },
      [](const CodePair& p) { return (p.q + p.k) % 3 != 0; },
      [](double, const CodePair&) { return 1.5; }},
     {"fwd bf16 batch=2 num_heads=4:2 seqlen=300:500 head_dim=64 blocks=64 lse",
      "fwd fp16 batch=2 num_heads=4:2 seqlen=300 head_dim=128 blocks=32:128 mask_bits causal "
      "mask_heads=2 lse",
      "fwd bf16 batch=2 num_heads=4 seqlen=200:333 head_dim=64 blocks=128:16 mask_batch=2 "
      "mask_heads=4 mask_bits lse"}},
    {"RowsOfBf16",
     {.score = "s + pairs_bf16[((batch * heads + head) * rows + q) * columns + k]",
      .args = "aligned bf16* pairs_bf16, int heads, int rows, int columns"},
     {[](double s, const CodePair& p) { return s + pair_of(p.batch, p.head, p.q, p.k); }, {}, one},
     kUsual},
    {"RowsOfFp16AndAMask",
     {.score = "2 * tanhf((s + pairs_fp16[q * columns + k]) / 2)",
      .mask = "(q + k) % 3 != 0",
      .args = "aligned fp16* pairs_fp16, int columns"},
     {[](double s, const CodePair& p) { return 2 * std::tanh((s + pair_of(0, 0, p.q, p.k)) / 2); },
      [](const CodePair& p) { return (p.q + p.k) % 3 != 0; },
      [](double s, const CodePair& p) { return slope_of_cap(s + pair_of(0, 0, p.q, p.k), 2); }},
     kUsual},
    {"RowsOfFp32",
     {.score = "s + pairs_fp32[((batch * heads + head) * rows + q) * columns + k]",
      .args = "aligned float* pairs_fp32, int heads, int rows, int columns"},
     {[](double s, const CodePair& p) { return s + pair_of(p.batch, p.head, p.q, p.k); }, {}, one},
     kUsual},
    {"RowsOfWideHeads",
     {.score = "s + pairs_fp16[q * columns + k]", .args = "aligned fp16* pairs_fp16, int columns"},
     {[](double s, const CodePair& p) { return s + pair_of(0, 0, p.q, p.k); }, {}, one},
     {"fwd bf16 batch=2 num_heads=4:2 seqlen=300 head_dim=256 causal lse",
      "fwd fp16 batch=2 num_heads=4:2 seqlen=77:333 head_dim=192:128 softcap=20 lse",
      "fwd bf16 batch=1 num_heads=4 seqlen=100:300 head_dim=64 blocks=64 lse"}},
    {"TermOfTheKey",
     {.score = "s - tanhf(weights[batch * 100 + k]) + 0.25f * float(k % 3)",
      .args = "float* weights[1024]"},
     {[](double s, const CodePair& p) {
        return s - std::tanh(weight_of(p.batch * 100 + p.k)) + 0.25 * double(p.k % 3);
      },
      {},
      one},
     kUsual},
    {"TheScoreItself",
     {.score = "s"},
     {[](double s, const CodePair&) { return s; }, {}, one},
     kUsual},
    {"AfterTheSoftCap",
     {.score = "s + 0.125f * float(head) * (k % 4)"},
     {[](double s, const CodePair& p) { return s + 0.125 * double(p.head * (p.k % 4)); }, {}, one},
     {"fwd bf16 batch=1 num_heads=4 seqlen=200 head_dim=128 softcap=3 lse causal",
      "fwd bf16 batch=1 num_heads=4 seqlen=200 head_dim=64 softcap=30"}},
};

}  // namespace

const std::vector<CodeCase>& code_cases() { return kCodeCases; }

}  // namespace attnforge::test
