// problem_text_test.cpp - the text form of problems: what is read, what is written, what is
// refused.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "attnforge/problem.h"
#include "tests/generator/expect_error.h"
#include "tests/support/arbitrary_problem.h"

namespace attnforge {
namespace {

using testing::HasSubstr;

std::string canonical(std::string_view text) { return to_string(parse_problem(text)); }

TEST(ProblemText, CanonicalTextHasAllSizesAndOnlyOptionsThatDiffer) {
  EXPECT_EQ(canonical("fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal"),
            "fwd bf16 batch=1 num_heads_q=32 num_heads_kv=8 seqlen_q=4096 seqlen_kv=4096 "
            "head_dim=128 head_dim_v=128 causal");
  EXPECT_EQ(canonical("fwd"),
            "fwd bf16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=1 seqlen_kv=1 head_dim=64 "
            "head_dim_v=64");
}

TEST(ProblemText, OptionsHaveOneOrder) {
  EXPECT_EQ(canonical("fwd alignment=8 rope_dim=32 softmax_scale=0.25 lse softcap=50 "
                      "window_right=0 rope=half window_left=127 causal layout=bhsd seqlen=7 fp16"),
            "fwd fp16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=7 seqlen_kv=7 head_dim=64 "
            "head_dim_v=64 layout=bhsd causal window_left=127 window_right=0 softcap=50 lse "
            "softmax_scale=0.25 rope=half rope_dim=32 alignment=8");
  EXPECT_EQ(canonical("fwd rope=none rope_dim=0"), canonical("fwd"));
  EXPECT_EQ(canonical("fwd sinks lengths=used softmax_scale=2 seqlen=7"),
            "fwd bf16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=7 seqlen_kv=7 head_dim=64 "
            "head_dim_v=64 softmax_scale=2 sinks lengths=used");
}

TEST(ProblemText, BatchInvarianceIsAWord) {
  EXPECT_EQ(canonical("fwd lengths=used batch_invariant sinks"),
            "fwd bf16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=1 seqlen_kv=1 head_dim=64 "
            "head_dim_v=64 sinks batch_invariant lengths=used");
  EXPECT_THAT(error_message(ErrorCode::kInvalidProblem,
                            [] { parse_problem("fwd blocks=64 batch_invariant"); }),
              testing::HasSubstr("batch_invariant does not go with blocks=64:64"));
}

TEST(ProblemText, ABlockMaskComesAfterTheOptions) {
  EXPECT_EQ(canonical("fwd density=0.41 mask_bits blocks=128:64 batch=2 mask_batch=2 mask_heads=8 "
                      "num_heads=8:2 seqlen=90 causal alignment=8"),
            "fwd bf16 batch=2 num_heads_q=8 num_heads_kv=2 seqlen_q=90 seqlen_kv=90 head_dim=64 "
            "head_dim_v=64 causal blocks=128:64 mask_heads=8 mask_batch=2 mask_bits density=0.41 "
            "alignment=8");
  EXPECT_EQ(parse_problem("fwd blocks=16"), parse_problem("fwd blocks=16:16"));
  EXPECT_EQ(parse_problem("fwd blocks=32:16"),
            parse_problem("fwd mask_block_q=32 mask_block_kv=16"));
  EXPECT_EQ(canonical("fwd blocks=0 mask_heads=1 density=0"), canonical("fwd"));
  const struct {
    const char *text, *said;
  } wrong[] = {
      {"fwd blocks=48", "mask_block_q=48 must be 0 (no block mask), 16, 32, 64 or 128"},
      {"fwd blocks=64:0", "mask_block_q=64 and mask_block_kv=0 must both be 0 or both not"},
      {"fwd num_heads=8:2 blocks=64 mask_heads=4", "mask_heads=4 must be 1, num_heads_kv=2 or"},
      {"fwd batch=4 blocks=64 mask_batch=2", "mask_batch=2 must be 1 or batch=4"},
      {"fwd mask_bits", "need a block mask"},
      {"fwd density=0.5", "density=0.5 need a block mask"},
      {"fwd blocks=64 density=1.5", "density=1.5 must be 0 (unknown, taken as 0.5) or a number"},
      {"fwd blocks=64 density=-1", "density=-1 must be"},
      {"fwd blocks=64 density=nan", "density=nan must be"},
      {"fwd blocks=64 density=half", "density must be 0 (unknown, taken as 0.5) or a number"},
      {"fwd blocks=64 mask_bits=1", "mask_bits takes no value"},
      {"fwd batch=1000000 seqlen=100000:64 blocks=16 mask_batch=1000000", "rows of blocks"},
  };
  for (const auto& each : wrong) {
    EXPECT_THAT(error_message(ErrorCode::kInvalidProblem, [&] { parse_problem(each.text); }),
                HasSubstr(each.said))
        << each.text;
  }
}

TEST(ProblemText, PagesBelongToUsedLengths) {
  EXPECT_EQ(
      canonical("fwd page_size=16 lengths=used batch=4 num_heads=8:2 seqlen=1:900 alignment=8"),
      "fwd bf16 batch=4 num_heads_q=8 num_heads_kv=2 seqlen_q=1 seqlen_kv=900 head_dim=64 "
      "head_dim_v=64 lengths=used page_size=16 alignment=8");
  EXPECT_EQ(canonical("fwd page_size=0"), canonical("fwd"));
  EXPECT_EQ(canonical("fwd lengths=packed batch=3 seqlen=9 tokens=5:0 page_size=16"),
            "fwd bf16 batch=3 num_heads_q=1 num_heads_kv=1 seqlen_q=9 seqlen_kv=9 head_dim=64 "
            "head_dim_v=64 lengths=packed tokens_q=5 tokens_kv=0 page_size=16");
  const struct {
    const char *text, *said;
  } wrong[] = {
      {"fwd lengths=used page_size=12",
       "page_size=12 must be 0 (no pages), 1, 2, 4 or a multiple of 8 up to"},
      {"fwd lengths=used page_size=-8", "page_size=-8 must be"},
      {"fwd lengths=used page_size=65544", "page_size=65544 must be"},
      {"fwd page_size=16", "page_size=16 needs lengths=used, or lengths=packed"},
      {"fwd lengths=packed page_size=16 seqlen=9 tokens=5",
       "tokens_kv=5 does not go with keys in pages"},
      {"fwd lengths=used page_size=16 layout=packed_qkv", "does not go with layout=packed_qkv"},
      {"fwd lengths=used page_size=16 blocks=64", "page_size=16 does not go with blocks=64:64"},
      {"fwd lengths=used page_size=8 batch=1000000 seqlen=1:100000", "more than 2^30 pages"},
      {"fwd lengths=used paged=8", "did you mean \"page_size="},
  };
  for (const auto& each : wrong) {
    EXPECT_THAT(error_message(ErrorCode::kInvalidProblem, [&] { parse_problem(each.text); }),
                HasSubstr(each.said))
        << each.text;
  }
}

TEST(ProblemText, LengthsAndTokensComeAfterTheOptions) {
  EXPECT_EQ(canonical("fwd lengths=packed tokens=100:200 batch=4 seqlen=50:90 causal"),
            "fwd bf16 batch=4 num_heads_q=1 num_heads_kv=1 seqlen_q=50 seqlen_kv=90 head_dim=64 "
            "head_dim_v=64 causal lengths=packed tokens_q=100 tokens_kv=200");
  EXPECT_EQ(canonical("fwd seqlen=9 lengths=used"),
            "fwd bf16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=9 seqlen_kv=9 head_dim=64 "
            "head_dim_v=64 lengths=used");
  EXPECT_EQ(canonical("fwd lengths=fixed"), canonical("fwd"));
  EXPECT_EQ(total_tokens(parse_problem("fwd batch=3 seqlen=5:7 lengths=packed")).kv, 21);
  EXPECT_THAT(error_message(ErrorCode::kInvalidProblem, [] { parse_problem("fwd lengths=short"); }),
              HasSubstr("lengths must be fixed, packed or used"));
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidProblem, [] { parse_problem("fwd tokens=5 seqlen=9"); }),
      HasSubstr("need lengths=packed"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidProblem,
                            [] { parse_problem("fwd tokens=5 seqlen=9 lengths=used"); }),
              HasSubstr("need lengths=packed"));
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidProblem,
                    [] { parse_problem("fwd lengths=packed batch=2 seqlen=9 tokens=5:99"); }),
      HasSubstr("tokens_kv=99 is more than batch=2"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidProblem,
                            [] { parse_problem("fwd lengths=packed seqlen=9 rope=half"); }),
              HasSubstr("rotate q and k before the run"));
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidProblem,
                    [] { parse_problem("fwd lengths=packed batch=1000000 seqlen=100000"); }),
      HasSubstr("more than 2^30 rows"));
}

TEST(ProblemText, Tf32IsAFlagOfFp32) {
  EXPECT_EQ(canonical("fwd tf32 fp32 lse"),
            "fwd fp32 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=1 seqlen_kv=1 head_dim=64 "
            "head_dim_v=64 lse tf32");
  EXPECT_TRUE(parse_problem("fwd fp32 tf32").tf32);
  EXPECT_FALSE(parse_problem("fwd fp32").tf32);
}

TEST(ProblemText, EveryFieldIsRead) {
  const Problem p = parse_problem(
      "fwd q=fp16 k=bf16 v=fp32 o=fp16 batch=2 num_heads_q=12 num_heads_kv=4 seqlen_q=5 "
      "seqlen_kv=6 head_dim=72 head_dim_v=40 layout=bhsd window_left=3 window_right=9 softcap=1.5 "
      "lse softmax_scale=2 rope=interleaved rope_dim=40 alignment=4");
  const Problem expected{.dtype_q = DType::kFp16,
                         .dtype_k = DType::kBf16,
                         .dtype_v = DType::kFp32,
                         .dtype_o = DType::kFp16,
                         .layout = Layout::kBhsd,
                         .lse = true,
                         .alignment_bytes = 4,
                         .batch = 2,
                         .num_heads_q = 12,
                         .num_heads_kv = 4,
                         .seqlen_q = 5,
                         .seqlen_kv = 6,
                         .head_dim = 72,
                         .head_dim_v = 40,
                         .window_left = 3,
                         .window_right = 9,
                         .softcap = 1.5f,
                         .softmax_scale = 2.0f,
                         .rope = Rope::kInterleaved,
                         .rope_dim = 40};
  EXPECT_EQ(p, expected);
}

TEST(ProblemText, ShorthandsMeanTheLongWords) {
  const auto same = [](std::string_view a, std::string_view b) {
    EXPECT_EQ(canonical(a), canonical(b));
  };
  same("fwd num_heads=32:8", "fwd num_heads_q=32 num_heads_kv=8");
  same("fwd num_heads=32", "fwd num_heads_q=32 num_heads_kv=32");
  same("fwd num_heads=32 num_heads_kv=4", "fwd num_heads=32:4");
  same("fwd seqlen=1:8192", "fwd seqlen_q=1 seqlen_kv=8192");
  same("fwd seqlen=8192", "fwd seqlen_q=8192 seqlen_kv=8192");
  same("fwd seqlen_q=77", "fwd seqlen=77");
  same("fwd head_dim=192:128", "fwd head_dim=192 head_dim_v=128");
  same("fwd head_dim=192", "fwd head_dim=192 head_dim_v=192");
  same("fwd fp16", "fwd q=fp16 k=fp16 v=fp16 o=fp16");
  same("fwd o=fp32 fp16", "fwd q=fp16 k=fp16 v=fp16 o=fp32");
}

TEST(ProblemText, AnyBlanksInAnyNumber) {
  EXPECT_EQ(canonical(" \tfwd  bf16\n\n seqlen=9\r\n"), canonical("fwd bf16 seqlen=9"));
}

RC_GTEST_PROP(ProblemText, ParsingWhatWasWrittenGivesTheSameProblem, ()) {
  const Problem p = *test::arbitrary_problem();
  RC_ASSERT(parse_problem(to_string(p)) == p);
  RC_ASSERT(to_string(parse_problem(to_string(p))) == to_string(p));
}

RC_GTEST_PROP(ProblemText, WordsMayStandInAnyOrderAfterTheOp, ()) {
  const Problem p = *test::arbitrary_problem();
  std::vector<std::string> words;
  std::string text = to_string(p);
  for (std::size_t begin = 4; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string shuffled(to_string(p.op));
  while (!words.empty()) {
    const auto at = *rc::gen::inRange<std::size_t>(0, words.size());
    shuffled += " " + words[at];
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  }
  RC_ASSERT(parse_problem(shuffled) == p);
}

RC_GTEST_PROP(ProblemText, FloatsComeBackBitForBit, (std::uint32_t bits)) {
  Problem p;
  // Any mantissa, exponents from 2^-64 to 2^63.
  const std::uint32_t exponent = 127 - 64 + (bits >> 23) % 128;
  p.softmax_scale = std::bit_cast<float>(exponent << 23 | (bits & 0x7fffffu));
  p.softcap = p.softmax_scale;
  const Problem back = parse_problem(to_string(p));
  RC_ASSERT(std::bit_cast<std::uint32_t>(back.softmax_scale) ==
            std::bit_cast<std::uint32_t>(p.softmax_scale));
  RC_ASSERT(back == p);
}

/// Pieces that make words that are nearly right.
std::string arbitrary_text() {
  const auto piece = rc::gen::element<std::string>(
      " ", " ", " ", "=", "=", ":", "8", "64", "-1", "1e5", ".5", "nan", "batch", "num_heads",
      "seqlen", "_q", "_kv", "head_dim", "_v", "q", "causal", "lse", "layout", "bshd", "packed_qkv",
      "softcap", "window_left", "alignment", "rope", "rope_dim", "half", "bf16", "fp32", "\t",
      "\xff", "9999999999");
  std::string text;
  for (const std::string& part : *rc::gen::container<std::vector<std::string>>(piece)) text += part;
  return text;
}

RC_GTEST_PROP(ProblemText, AnyTextIsReadAsAValidProblemOrRefused, ()) {
  const std::string text = arbitrary_text();
  try {
    validate(parse_problem("fwd " + text));
  } catch (const Error& error) {
    RC_ASSERT(error.code() == ErrorCode::kInvalidProblem);
  }
}

TEST(ProblemText, WordsOfBackwardComeAfterTheSizes) {
  EXPECT_EQ(canonical("bwd seqlen=4 gradients=fp32 dlse accumulate deterministic causal"),
            "bwd bf16 batch=1 num_heads_q=1 num_heads_kv=1 seqlen_q=4 seqlen_kv=4 head_dim=64 "
            "head_dim_v=64 causal deterministic accumulate dlse gradients=fp32");
  EXPECT_EQ(canonical("bwd gradients=same"), canonical("bwd"));
  EXPECT_NE(canonical("bwd"), canonical("fwd"));
}

struct Refused {
  std::string text;
  std::vector<std::string> said;  // each in the message
};

TEST(ProblemText, ErrorsNameTheWordTheValueAndWhatIsAllowed) {
  const std::vector<Refused> table = {
      {"", {"empty", "fwd"}},
      {"   ", {"empty"}},
      {"bf16 seqlen=4", {"op \"bf16\"", "must be fwd, bwd, merge or append"}},
      {"fwd int8", {"\"int8\" is not implemented: k and v may be, as in k=e4m3 v=e4m3"}},
      {"fwd fp8", {"unknown word \"fp8\"", "did you mean \"e4m3\"?"}},
      {"fwd q=int8", {"q=int8 must be fp32, fp16, bf16 or e4m3"}},
      {"fwd q=e4m3", {"q=e4m3 goes with k=e4m3 v=e4m3, not bf16"}},
      {"fwd e4m3 kv_scale=group64", {"takes kv_scale=none, tensor, head or token, not group64"}},
      {"fwd e4m3 rope=half", {"does not go with rope=half"}},
      {"bwd e4m3", {"e4m3", "bwd"}},
      {"append e4m3", {"e4m3", "append"}},
      {"merge e4m3 parts=2", {"e4m3", "merge"}},
      {"fwd fast_sums", {"fast_sums is of q=e4m3, not q=bf16; leave it out"}},
      {"fwd dropout=0.1", {"\"dropout=0.1\" is not implemented: leave it out"}},
      {"fwd e5m2 causl", {"\"e5m2\" is not implemented: k and v", "did you mean \"causal\"?"}},
      {"fwd causl", {"unknown word \"causl\"", "did you mean \"causal\"?", "help problem"}},
      {"fwd seqlen_k=8", {"unknown word \"seqlen_k=8\"", "did you mean \"seqlen_kv=8\"?"}},
      {"fwd hed_dim=8", {"did you mean \"head_dim=8\"?"}},
      {"fwd hed_dim", {"did you mean \"head_dim=\"?"}},
      {"fwd zzz=8", {"unknown word \"zzz=8\"; attnforge help problem has every word"}},
      {"fwd =3", {"unknown word \"=3\""}},
      {"fwd batch", {"\"batch\" needs a value"}},
      {"fwd layout", {"\"layout\" needs a value"}},
      {"fwd causal=1", {"\"causal=1\"", "takes no value"}},
      {"fwd bf16=1", {"\"bf16=1\"", "takes no value"}},
      {"fwd batch=two", {"\"batch=two\"", "not \"two\"", "from 0 to 1048576"}},
      {"fwd batch=", {"\"batch=\"", "not \"\""}},
      {"fwd batch=3.5", {"\"batch=3.5\"", "whole number"}},
      {"fwd batch=+3", {"\"batch=+3\""}},
      {"fwd batch=99999999999999999999", {"99999999999999999999", "from 0 to 1048576"}},
      {"fwd num_heads=8:x", {"\"num_heads=8:x\"", "num_heads_kv", "not \"x\""}},
      {"fwd num_heads=8:2:1", {"\"num_heads=8:2:1\"", "num_heads_kv"}},
      {"fwd num_heads_q=8:2", {"\"num_heads_q=8:2\"", "num_heads_q"}},
      {"fwd head_dim=4294967304", {"head_dim=4294967304", "multiple of 8 from 8 to 512"}},
      {"fwd layout=sbhd", {"\"layout=sbhd\"", "bshd, bhsd or packed_qkv"}},
      {"fwd softcap=big", {"\"softcap=big\"", "from 1e-20 to 1e20"}},
      {"fwd softcap=nan", {"softcap=nan", "from 1e-20 to 1e20"}},
      {"fwd softmax_scale=inf", {"softmax_scale=inf", "from 1e-20 to 1e20"}},
      {"fwd bf16 bf16", {"\"bf16\" gives dtype again"}},
      {"fwd bf16 fp16", {"\"fp16\" gives dtype again after \"bf16\""}},
      {"fwd causal causal", {"\"causal\" gives causal again"}},
      {"fwd batch=1 batch=1", {"\"batch=1\" gives batch again"}},
      {"fwd seqlen=4 seqlen_q=4", {"\"seqlen_q=4\" gives seqlen_q again after \"seqlen=4\""}},
      {"fwd seqlen_kv=4 seqlen=4:4", {"gives seqlen_kv again after \"seqlen_kv=4\""}},
      {"fwd head_dim=64:64 head_dim_v=64", {"gives head_dim_v again"}},
      {"fwd q=bf16 q=bf16", {"gives q again"}},
      {"fwd layout=bshd layout=bshd", {"gives layout again"}},
      {"fwd softcap=1 softcap=2", {"gives softcap again"}},
      {"fwd rope", {"\"rope\" needs a value"}},
      {"fwd rope=neox", {"\"rope=neox\"", "none, interleaved or half", "not \"neox\""}},
      {"fwd rope=half rope=half", {"gives rope again"}},
      {"fwd rope=half rope_dim=4", {"rope_dim=4", "multiple of 8 up to head_dim"}},
      {"bwd gradients=fp16", {"gradients must be same (as q, k and v) or fp32", "not \"fp16\""}},
      {"bwd deterministic=1", {"takes no value"}},
      {"fwd accumulate", {"accumulate is of bwd alone"}},
      {"bwd lse", {"lse does not go with bwd"}},
      {"fwd num_heads=7:2", {"num_heads_q=7", "num_heads_kv=2"}},
  };
  for (const Refused& row : table) {
    SCOPED_TRACE(row.text);
    const std::string message = error_message(ErrorCode::kInvalidProblem,
                                              [&] { parse_problem(row.text); });
    for (const std::string& said : row.said) EXPECT_THAT(message, HasSubstr(said));
  }
}

TEST(ProblemText, AnUnknownWordOfMegabytesIsRefusedAsAShortOneIs) {
  const std::string text = "fwd seqlenn" + std::string(10'000'000, 'x');
  const std::string message = error_message(ErrorCode::kInvalidProblem,
                                            [&] { parse_problem(text); });
  EXPECT_LT(message.size(), 1000u);
  EXPECT_THAT(message, HasSubstr("xxx...\"; attnforge help problem"));
}

}  // namespace
}  // namespace attnforge
