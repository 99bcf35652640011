// cases.cpp - the list. Small problems: they are about edges, not about load.
#include "tests/conformance/cases.h"

#include <fmt/format.h>

namespace attnforge::test {
namespace {

/// What fp32 adds: head dims of its own tiles, TF32 by permission, and inputs that splitting into
/// two TF32 numbers might get wrong.
std::vector<ConformanceCase> fp32() {
  ConformanceCase dims{"Fp32HeadDims", {}};
  for (const int head_dim : {8, 24, 40, 48, 64, 72, 96, 104, 128, 160, 192, 256, 264, 328, 512}) {
    const int i = head_dim / 8;
    dims.problems.push_back(fmt::format(
        "fwd fp32 batch=1 num_heads=2:1 seqlen=150:{} head_dim={}{}{}{}", i % 3 == 0 ? 150 : 203,
        head_dim, i % 4 < 2 ? " causal" : "", i % 3 == 1 ? " lse" : "", i % 2 == 0 ? " tf32" : ""));
  }
  const std::string sizes = "fwd fp32 batch=1 num_heads=4:2 seqlen=200:333 head_dim=64 lse ";
  const std::vector<std::string> ragged = {
      "fwd fp32 batch=1 num_heads=2 seqlen=65:129 head_dim=128 lse",
      "fwd fp32 batch=1 num_heads=2 seqlen=130:70 head_dim=64 causal lse"};
  ConformanceCase odd{"Fp32AlignmentAndStrides", {}, Inputs::kNormal, {3, 1, 5}};
  for (const char* options : {"alignment=4", "alignment=8 layout=bhsd", "layout=packed_qkv"}) {
    odd.problems.push_back(fmt::format(
        "fwd fp32 batch=2 num_heads=4:2 seqlen=150 head_dim=72 causal lse {}", options));
  }
  return {dims,
          odd,
          {"Fp32Edges",
           {"fwd fp32 batch=2 num_heads=4:2 seqlen=1 head_dim=64 lse",
            "fwd fp32 batch=3 num_heads=8:1 seqlen=1:1001 head_dim=128 causal lse",
            "fwd fp32 batch=1 num_heads=2 seqlen=200:1 head_dim=64 lse tf32",
            "fwd fp32 batch=1 num_heads=4:2 seqlen=300:70 head_dim=128 causal lse",
            "fwd fp32 batch=1 num_heads=6:2 seqlen=7:333 head_dim=128 causal lse tf32",
            "fwd fp32 batch=0 num_heads=2 seqlen=64 head_dim=64 lse",
            "fwd fp32 batch=1 num_heads=2 seqlen=0:64 head_dim=64 lse",
            "fwd fp32 batch=2 num_heads=2 seqlen=70:0 head_dim=64 lse"}},
          {"Fp32UnequalHeadDims",
           {"fwd fp32 batch=1 num_heads=2 seqlen=150:250 head_dim=192:128 causal lse",
            "fwd fp32 batch=1 num_heads=2 seqlen=130:200 head_dim=64:256 tf32",
            "fwd fp32 batch=1 num_heads=2 seqlen=70:90 head_dim=512:40",
            "fwd fp32 batch=1 num_heads=2:1 seqlen=70:90 head_dim=40:72 causal"}},
          {"Fp32MasksAndScores",
           {sizes + "window_left=50", sizes + "window_left=17 window_right=33 tf32",
            sizes + "softcap=30 causal", sizes + "softmax_scale=0.03 tf32",
            "fwd fp32 batch=1 num_heads=2 seqlen=1500 head_dim=128 lse window_left=100 causal"}},
          {"Fp32StronglyNegativeScores", ragged, Inputs::kStronglyNegative},
          {"Fp32StronglyPositiveScores", ragged, Inputs::kStronglyPositive},
          {"Fp32GrowingScores", ragged, Inputs::kGrowingToFirst},
          {"Fp32LargeInputs", ragged, Inputs::kLarge},
          {"Fp32KeysWithScoresOfMinusInfinity", ragged, Inputs::kInfiniteKeys}};
}

/// Eight head dims a test, all of them from 8 to 512; dtype, mask and lse change from one to the
/// next.
void add_head_dims(std::vector<ConformanceCase>& cases) {
  for (int from = 8; from <= 512; from += 64) {
    ConformanceCase c;
    c.name = fmt::format("HeadDims{}To{}", from, from + 56);
    for (int head_dim = from; head_dim < from + 64; head_dim += 8) {
      const int i = head_dim / 8;
      c.problems.push_back(fmt::format("fwd {} batch=1 num_heads=2:1 seqlen=150:{} head_dim={}{}{}",
                                       i % 2 == 0 ? "bf16" : "fp16", i % 3 == 0 ? 150 : 203,
                                       head_dim, i % 4 < 2 ? " causal" : "",
                                       i % 3 == 1 ? " lse" : ""));
    }
    cases.push_back(c);
  }
}

std::vector<ConformanceCase> edges() {
  return {
      {"SeqlenOne",
       {"fwd bf16 batch=2 num_heads=4:2 seqlen=1 head_dim=64 lse",
        "fwd fp16 batch=1 num_heads=1 seqlen=1 head_dim=128 causal"}},
      {"OneQueryManyKeys",
       {"fwd bf16 batch=3 num_heads=8:1 seqlen=1:1001 head_dim=128 causal lse"}},
      {"ManyQueriesOneKey", {"fwd fp16 batch=1 num_heads=2 seqlen=200:1 head_dim=64 lse"}},
      {"RaggedTails",
       {"fwd bf16 batch=2 num_heads=2 seqlen=129:257 head_dim=128 lse",
        "fwd fp16 batch=1 num_heads=3 seqlen=127:63 head_dim=64",
        "fwd bf16 batch=1 num_heads=2 seqlen=100:321 head_dim=96 causal lse"}},
      {"TilesThatFitExactly",
       {"fwd bf16 batch=1 num_heads=2 seqlen=256 head_dim=128 causal lse",
        "fwd fp16 batch=1 num_heads=2 seqlen=384:512 head_dim=64"}},
      {"SeqlenQLongerThanKvCausal",
       {"fwd bf16 batch=1 num_heads=4:2 seqlen=300:70 head_dim=128 causal lse",
        "fwd fp16 batch=2 num_heads=2 seqlen=500:10 head_dim=64 causal lse"}},
      {"FullyMaskedRowsWithoutLse",
       {"fwd bf16 batch=1 num_heads=2 seqlen=257:31 head_dim=80 causal"}},
      {"FullyMaskedRowsByWindow",
       {"fwd fp16 batch=1 num_heads=2 seqlen=200:50 head_dim=64 window_left=4 window_right=4 lse"}},
      {"Gqa8To1",
       {"fwd bf16 batch=2 num_heads=16:2 seqlen=140:190 head_dim=128 causal lse",
        "fwd fp16 batch=1 num_heads=8:1 seqlen=3:777 head_dim=64 causal"}},
      {"Gqa3To1", {"fwd bf16 batch=1 num_heads=6:2 seqlen=7:333 head_dim=128 causal lse"}},
      {"GroupsOfAnySize",
       {"fwd bf16 batch=2 num_heads=28:4 seqlen=1:300 head_dim=128 lse",
        "fwd fp16 batch=1 num_heads=24:8 seqlen=5:200 head_dim=64 causal lse",
        "fwd bf16 batch=1 num_heads=10:2 seqlen=40:210 head_dim=80 window_left=30 causal lse",
        "fwd bf16 batch=3 num_heads=71:1 seqlen=1:333 head_dim=64",
        "fwd fp16 batch=2 num_heads=71:1 seqlen=5:333 head_dim=64 causal lse",
        "fwd bf16 batch=3 num_heads=20:4 seqlen=150:400 head_dim=128 lengths=packed causal lse",
        "fwd bf16 batch=2 num_heads=96:2 seqlen=7:300 head_dim=40 window_left=90 lse",
        "fwd fp16 batch=1 num_heads=130:1 seqlen=2:100 head_dim=64 causal lse"}},
      {"Mqa", {"fwd fp16 batch=2 num_heads=5:1 seqlen=90:210 head_dim=64 lse"}},
      {"ManyHeadsAndBatches",
       {"fwd bf16 batch=7 num_heads=12:4 seqlen=33:65 head_dim=32 causal lse"}},
      {"NoBatch", {"fwd bf16 batch=0 num_heads=2 seqlen=64 head_dim=64 lse"}},
      {"NoQueries", {"fwd bf16 batch=1 num_heads=2 seqlen=0:64 head_dim=64 lse"}},
      {"NoKeys",
       {"fwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64 lse",
        "fwd fp16 batch=1 num_heads=1 seqlen=5:0 head_dim=128:40 causal"}},
      {"UnequalHeadDims",
       {"fwd bf16 batch=1 num_heads=2 seqlen=150:250 head_dim=192:128 causal lse",
        "fwd fp16 batch=1 num_heads=2 seqlen=130:200 head_dim=64:256",
        "fwd bf16 batch=1 num_heads=2 seqlen=130:200 head_dim=256:64 lse",
        "fwd bf16 batch=1 num_heads=2 seqlen=70:90 head_dim=8:256",
        "fwd fp16 batch=1 num_heads=2:1 seqlen=70:90 head_dim=40:72 causal"}},
      {"UnequalLargeHeadDims",
       {"fwd bf16 batch=1 num_heads=2 seqlen=150:250 head_dim=512:64 causal lse",
        "fwd fp16 batch=1 num_heads=2:1 seqlen=130:200 head_dim=64:512 lse",
        "fwd bf16 batch=1 num_heads=2 seqlen=70:90 head_dim=8:264 window_left=20",
        "fwd fp16 batch=1 num_heads=2 seqlen=70:90 head_dim=328:248 softcap=20 lse",
        "fwd bf16 batch=2 num_heads=2:1 seqlen=33:130 head_dim=320:384 causal alignment=4",
        "fwd bf16 batch=1 num_heads=8:1 seqlen=2:700 head_dim=504:512 causal lse"}},
  };
}

std::vector<ConformanceCase> masks_and_scores() {
  const std::string sizes = " batch=1 num_heads=4:2 seqlen=200:333 head_dim=64 lse ";
  const std::vector<std::string> windows = {
      "fwd bf16" + sizes + "window_left=50",
      "fwd fp16" + sizes + "window_right=50",
      "fwd bf16" + sizes + "window_left=0 causal",
      "fwd fp16" + sizes + "window_left=128 window_right=0",
      "fwd bf16" + sizes + "window_left=17 window_right=33",
      "fwd bf16" + sizes + "window_left=1000 window_right=1000",
      "fwd bf16 batch=1 num_heads=2 seqlen=1500 head_dim=128 lse window_left=100 causal"};
  const std::vector<std::string> ragged = {
      "fwd bf16 batch=1 num_heads=2 seqlen=65:129 head_dim=128 lse",
      "fwd fp16 batch=1 num_heads=2 seqlen=130:70 head_dim=64 causal lse"};
  const std::vector<std::string> growing = {
      "fwd bf16 batch=1 num_heads=2 seqlen=1100 head_dim=128 causal lse",
      "fwd fp16 batch=1 num_heads=2 seqlen=200:1100 head_dim=64 lse",
      "fwd bf16 batch=1 num_heads=1 seqlen=600 head_dim=256 lse"};
  return {
      {"Windows", windows},
      {"Softcap",
       {"fwd bf16" + sizes + "softcap=30", "fwd fp16" + sizes + "softcap=2 causal",
        "fwd bf16" + sizes + "softcap=50 window_left=40 window_right=3"}},
      {"SoftcapOfLargeScores", {"fwd bf16" + sizes + "softcap=20 causal"}, Inputs::kLarge},
      {"SoftmaxScale",
       {"fwd bf16" + sizes + "softmax_scale=0.03 causal", "fwd fp16" + sizes + "softmax_scale=1"}},
      {"StronglyNegativeScoresRaggedTail", ragged, Inputs::kStronglyNegative},
      {"StronglyPositiveScoresRaggedTail", ragged, Inputs::kStronglyPositive},
      {"ScoresGrowTowardsTheFirstKey", growing, Inputs::kGrowingToFirst},
      {"ScoresGrowTowardsTheLastKey", growing, Inputs::kGrowingToLast},
      {"LargeInputs", ragged, Inputs::kLarge},
      {"EqualScores", ragged, Inputs::kEqualScores},
      {"KeysWithScoresOfMinusInfinity", ragged, Inputs::kInfiniteKeys},
      {"LseOffAndOn",
       {"fwd bf16 batch=1 num_heads=2 seqlen=90 head_dim=64",
        "fwd bf16 batch=1 num_heads=2 seqlen=90 head_dim=64 lse"}},
      {"DtypesOfAllKinds",
       {"fwd fp32 batch=1 num_heads=2 seqlen=100:150 head_dim=64 causal lse",
        "fwd fp16 batch=1 num_heads=2 seqlen=100:150 head_dim=64 causal lse",
        "fwd q=bf16 k=fp16 v=fp32 o=fp32 batch=1 num_heads=2 seqlen=70:90 head_dim=40:24 lse",
        "fwd q=bf16 k=bf16 v=bf16 o=fp32 batch=1 num_heads=2 seqlen=70:90 head_dim=128"}},
  };
}

std::vector<ConformanceCase> ropes() {
  const std::string sizes = " batch=2 num_heads=4:2 seqlen=150:203 ";
  return {
      {"RopeHalf",
       {"fwd bf16" + sizes + "head_dim=128 causal lse rope=half",
        "fwd fp16" + sizes + "head_dim=64 rope=half"}},
      {"RopeInterleaved",
       {"fwd bf16" + sizes + "head_dim=64 causal lse rope=interleaved",
        "fwd fp16" + sizes + "head_dim=128 lse rope=interleaved"}},
      {"RopeOfLeadingElements",
       {"fwd bf16" + sizes + "head_dim=128 lse rope=half rope_dim=64",
        "fwd fp16" + sizes + "head_dim=96 causal rope=half rope_dim=24",
        "fwd bf16" + sizes + "head_dim=192:128 causal rope=interleaved rope_dim=64",
        "fwd fp16" + sizes + "head_dim=64 rope=interleaved rope_dim=8"}},
      {"RopeOfOddHeadDims",
       {"fwd bf16" + sizes + "head_dim=72 causal lse rope=half",
        "fwd fp16" + sizes + "head_dim=40 rope=interleaved",
        "fwd bf16" + sizes + "head_dim=80 rope=half",
        "fwd fp16" + sizes + "head_dim=104 causal rope=half rope_dim=88",
        "fwd bf16" + sizes + "head_dim=160 rope=interleaved",
        "fwd fp16" + sizes + "head_dim=256 causal lse rope=half"}},
      {"RopeOfManyQueriesAndFewKeys",
       {"fwd bf16 batch=1 num_heads=4:2 seqlen=300:70 head_dim=128 causal lse rope=half",
        "fwd fp16 batch=1 num_heads=2 seqlen=200:50 head_dim=64 lse rope=interleaved"}},
      {"RopeOfOneQuery",
       {"fwd bf16 batch=3 num_heads=8:1 seqlen=1:1001 head_dim=128 causal lse rope=half",
        "fwd bf16 batch=2 num_heads=8:2 seqlen=3:300 head_dim=64 causal rope=interleaved"}},
      {"RopeOfFp32",
       {"fwd fp32" + sizes + "head_dim=64 causal lse rope=half",
        "fwd fp32" + sizes + "head_dim=128 rope=interleaved rope_dim=40",
        "fwd fp32 batch=2 num_heads=8:2 seqlen=3:300 head_dim=72 causal lse rope=half tf32"}},
      {"RopeWithoutKeys", {"fwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64 lse rope=half"}},
      {"RopeWithWindowAndSoftcap",
       {"fwd fp16" + sizes + "head_dim=64 window_left=17 window_right=33 softcap=20 lse rope=half",
        "fwd bf16 batch=1 num_heads=2 seqlen=1500 head_dim=128 lse window_left=100 causal "
        "rope=interleaved"}},
      {"RopeOfManyTiles",
       {"fwd bf16 batch=4 num_heads=32:8 seqlen=700:1100 head_dim=128 causal lse rope=half",
        "fwd fp16 batch=4 num_heads=40 seqlen=600 head_dim=64 rope=interleaved"},
       Inputs::kNormal,
       {},
       1600},
      {"RopeWithGapsAndOddStrides",
       {"fwd bf16 batch=2 num_heads=4:2 seqlen=150 head_dim=72 causal lse rope=half layout=bhsd "
        "alignment=4",
        "fwd fp16 batch=2 num_heads=4:2 seqlen=150 head_dim=64 rope=interleaved "
        "layout=packed_qkv alignment=2"},
       Inputs::kNormal,
       {.row = 3, .head = 1, .rows_after = 5}},
      {"RopeOfOtherDtypes",
       {"fwd fp32" + sizes + "head_dim=64 causal lse rope=half rope_dim=40",
        "fwd q=bf16 k=fp16 v=fp32 o=fp32" + sizes + "head_dim=40:24 lse rope=interleaved"}},
  };
}

/// Sequences of any length, each with an empty one, a full one and one of a single row.
std::vector<ConformanceCase> lengths() {
  const std::string sizes = " batch=5 num_heads=4:2 seqlen=200:333 head_dim=64 lse ",
                    large = " batch=4 num_heads=4:2 seqlen=300 head_dim=128 lse ";
  const Gaps gaps{.row = 3, .head = 1, .rows_after = 5};
  std::vector<std::string> packed, used;
  for (const std::string options : {"", "causal", "window_left=50 window_right=20",
                                    "window_left=100 causal softcap=20", "softcap=30"}) {
    packed.push_back("fwd bf16" + sizes + "lengths=packed " + options);
    used.push_back("fwd fp16" + sizes + "lengths=used " + options);
  }
  return {
      {"PackedMasks", packed},
      {"UsedMasks", used},
      {"PackedFp32",
       {"fwd fp32" + sizes + "lengths=packed causal", "fwd fp32" + large + "lengths=packed tf32"}},
      {"UsedFp32",
       {"fwd fp32" + sizes + "lengths=used", "fwd fp32" + large + "lengths=used causal tf32"}},
      {"PackedHeadDims",
       {"fwd bf16" + large + "lengths=packed", "fwd fp16" + large + "lengths=packed causal",
        "fwd bf16 batch=3 num_heads=2 seqlen=150:203 head_dim=256 lengths=packed causal lse",
        "fwd fp16 batch=3 num_heads=2:1 seqlen=150:203 head_dim=192:128 lengths=packed causal lse",
        "fwd bf16 batch=3 num_heads=2 seqlen=150 head_dim=72 lengths=packed",
        "fwd bf16 batch=3 num_heads=2 seqlen=70:150 head_dim=512:64 lengths=packed causal"}},
      {"UsedHeadDims",
       {"fwd bf16" + large + "lengths=used causal", "fwd fp16" + large + "lengths=used",
        "fwd fp16 batch=3 num_heads=2 seqlen=150:203 head_dim=256 lengths=used lse",
        "fwd bf16 batch=3 num_heads=2:1 seqlen=150:203 head_dim=40:104 lengths=used causal lse"}},
      {"PackedWithRoomLeft",
       {"fwd bf16 batch=6 num_heads=4:2 seqlen=200 tokens=700 head_dim=64 lengths=packed causal "
        "lse",
        "fwd fp16 batch=6 num_heads=4:2 seqlen=200:300 tokens=300:900 head_dim=128 lengths=packed "
        "lse"}},
      {"PackedFewQueries",
       {"fwd bf16 batch=9 num_heads=16:2 seqlen=3:700 head_dim=128 lengths=packed causal lse",
        "fwd fp16 batch=9 num_heads=6:2 seqlen=1:700 head_dim=64 lengths=packed lse"}},
      {"UsedFewQueries",
       {"fwd bf16 batch=9 num_heads=16:2 seqlen=1:700 head_dim=128 lengths=used causal lse",
        "fwd fp16 batch=9 num_heads=8:1 seqlen=5:700 head_dim=64 lengths=used lse"}},
      {"PackedLayouts",
       {"fwd bf16 batch=3 num_heads=4:2 seqlen=150 head_dim=64 lengths=packed layout=bhsd lse",
        "fwd fp16 batch=3 num_heads=4:2 seqlen=150 head_dim=64 lengths=packed layout=packed_qkv "
        "causal lse",
        "fwd bf16 batch=3 num_heads=4:2 seqlen=150 head_dim=72 lengths=packed alignment=4 causal"},
       Inputs::kNormal,
       gaps},
      {"UsedLayouts",
       {"fwd bf16 batch=3 num_heads=4:2 seqlen=150 head_dim=64 lengths=used layout=bhsd lse",
        "fwd fp16 batch=3 num_heads=4:2 seqlen=150 head_dim=64 lengths=used layout=packed_qkv "
        "causal lse",
        "fwd fp16 batch=3 num_heads=4:2 seqlen=150 head_dim=72 lengths=used alignment=2 causal"},
       Inputs::kNormal,
       gaps},
      {"PackedBesideNotANumber",
       // Under a causal mask each row sees a key: one that sees none has 0 or, of NaN, NaN.
       {"fwd bf16" + sizes + "lengths=packed",
        "fwd fp16" + large + "lengths=packed layout=packed_qkv causal",
        "fwd fp32" + sizes + "lengths=packed"},
       Inputs::kOddSequencesNaN},
      {"PackedGrowingScores",
       {"fwd bf16" + large + "lengths=packed causal"},
       Inputs::kGrowingToFirst},
      {"PackedManyTiles",
       {"fwd bf16 batch=70 num_heads=16:4 seqlen=130 head_dim=64 lengths=packed causal lse",
        "fwd fp16 batch=70 num_heads=16 seqlen=130 head_dim=128 lengths=packed lse"}},
      {"LengthsOfNothing",
       {"fwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64 lengths=packed lse",
        "fwd bf16 batch=0 num_heads=2 seqlen=70 head_dim=64 lengths=packed lse",
        "fwd bf16 batch=2 num_heads=2 seqlen=0:70 head_dim=64 lengths=used lse"}},
  };
}

/// k and v of 8 and 4 bits: each format with each kind of scale, in one piece and in pages, and
/// with all else that a problem may have. Scales of free pages are NaN.
std::vector<ConformanceCase> low_bits() {
  const std::vector<std::string> formats = {"int8", "int4", "e4m3", "e5m2"},
                                 scales = {"none",    "tensor",  "head",    "token",
                                           "group32", "group64", "group128"};
  std::vector<ConformanceCase> cases;
  for (const std::string& format : formats) {
    ConformanceCase c{"LowBits_" + format, {}};
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const std::string kv = fmt::format(" k={} v={} kv_scale={} lse ", format, format, scales[i]);
      const std::string odd = i % 2 == 0 ? "bf16" : "fp16", even = i % 2 == 0 ? "fp16" : "bf16";
      c.problems.push_back("fwd " + odd + kv +
                           "batch=7 num_heads=8:2 seqlen=1:700 head_dim=128 lengths=used "
                           "page_size=16");
      c.problems.push_back("fwd " + even + kv +
                           "batch=2 num_heads=4:2 seqlen=150:333 head_dim=64 causal");
      c.problems.push_back("fwd " + odd + kv +
                           "batch=5 num_heads=6:2 seqlen=70:200 head_dim=96 lengths=packed");
    }
    cases.push_back(c);
  }
  const auto add = [&](const char* name, std::vector<std::string> problems,
                       Inputs inputs = Inputs::kNormal, const Gaps& gaps = {}) {
    cases.push_back({name, std::move(problems), inputs, gaps});
  };
  ConformanceCase dims{"LowBitsHeadDims", {}};
  for (const int head_dim : {8, 16, 24, 40, 56, 72, 80, 104, 120, 160, 192, 200, 256, 264, 512}) {
    const int i = head_dim / 8;
    const std::string& k = formats[static_cast<std::size_t>(i % 4)];
    const std::string& v = formats[static_cast<std::size_t>(i / 2 % 4)];
    dims.problems.push_back(fmt::format(
        "fwd {} k={} v={} kv_scale={} batch=2 num_heads=4:1 seqlen={}:203 head_dim={} lse "
        "alignment={}",
        i % 2 == 0 ? "bf16" : "fp16", k, v, scales[static_cast<std::size_t>(i % 7)],
        i % 3 == 0 ? 1 : 90, head_dim, i % 2 == 0 ? 4 : 16));
  }
  cases.push_back(dims);
  const std::string few = " batch=7 num_heads=8:2 seqlen=2:300 head_dim=64 lse lengths=used ",
                    many = " batch=5 num_heads=4:2 seqlen=200:333 head_dim=128 lse ";
  add("LowBitsOfOneOfThem",
      {"fwd bf16 k=int8 kv_scale=token" + few, "fwd fp16 v=int4 kv_scale=group32" + many,
       "fwd bf16 v=e4m3 kv_scale=head page_size=16" + few, "fwd fp16 k=e5m2" + many,
       "fwd bf16 k=e4m3 v=int4 kv_scale=group64 page_size=64" + few,
       "fwd bf16 k=int4 v=int8 kv_scale=token head_dim=192:128 batch=2 num_heads=4:2 "
       "seqlen=33:250"});
  add("LowBitsWithScores",
      {"fwd bf16 k=int8 v=int8 kv_scale=token softcap=20 page_size=16" + few,
       "fwd fp16 k=int4 v=int4 kv_scale=group64 window_left=17 causal" + many,
       "fwd bf16 k=e4m3 v=e4m3 kv_scale=head sinks page_size=32" + few,
       "fwd fp16 k=int8 v=int8 kv_scale=token sinks softcap=2" + many,
       "fwd bf16 k=int8 v=int8 kv_scale=token batch_invariant page_size=16" + few});
  const Gaps gaps{.row = 3, .head = 1, .rows_after = 5};
  add("LowBitsWithGaps",
      {"fwd bf16 k=int8 v=int8 kv_scale=token layout=bhsd" + many,
       "fwd fp16 k=int4 v=int4 kv_scale=group32 alignment=4 page_size=24" + few,
       "fwd bf16 k=int8 v=e4m3 kv_scale=token page_size=1" + few,
       "fwd fp16 k=e4m3 v=int4 kv_scale=group64 page_size=4" + few,
       "fwd bf16 k=e5m2 v=int8 kv_scale=head layout=bhsd page_size=16" + few,
       "fwd bf16 k=int4 v=e4m3 kv_scale=group64 alignment=8" + many},
      Inputs::kNormal, gaps);
  const std::string prefill = " batch=5 num_heads=8:2 seqlen=90:700 head_dim=128 lse ";
  add("LowBitsOfManyQueries",
      {"fwd bf16 k=int8 v=int8 kv_scale=token lengths=packed page_size=16 causal" + prefill,
       "fwd fp16 k=int4 v=int4 kv_scale=group64 lengths=packed page_size=1 sinks" + prefill,
       "fwd bf16 k=e4m3 v=int4 kv_scale=head lengths=packed page_size=48 window_left=40" + prefill,
       "fwd fp16 k=e5m2 v=e5m2 kv_scale=tensor lengths=used page_size=24 softcap=20" + prefill,
       "fwd bf16 v=int8 kv_scale=group32 lengths=used page_size=64 causal" + prefill,
       "fwd bf16 k=e4m3 v=e4m3 kv_scale=head lengths=packed causal" + prefill,
       "fwd fp16 k=int8 lengths=used blocks=64 mask_bits" + prefill,
       "fwd bf16 k=int4 v=e4m3 kv_scale=token head_dim=192:128 batch=1 num_heads=16:2 "
       "seqlen=17:3000 lse",
       "fwd bf16 k=int8 v=int8 kv_scale=token lengths=used page_size=16 seqlen=90:0 batch=2 "
       "num_heads=2 head_dim=64 lse"});
  add("LowBitsWithZeroPoints",
      {"fwd bf16 k=int4 v=int4 kv_scale=token kv_zero page_size=16" + few,
       "fwd fp16 k=int4 v=int4 kv_scale=group32 kv_zero causal" + many,
       "fwd bf16 k=int4 v=int4 kv_scale=group64 kv_zero lengths=packed page_size=16" + prefill,
       "fwd fp16 k=int4 v=int4 kv_scale=group128 kv_zero sinks softcap=20" + few,
       "fwd bf16 k=int4 kv_scale=token kv_zero window_left=40" + many,
       "fwd fp16 v=int4 kv_scale=group32 kv_zero page_size=64" + few,
       "fwd bf16 k=int4 v=int4 kv_scale=token kv_zero lengths=packed causal" + prefill,
       "fwd bf16 k=int4 v=int4 kv_scale=token kv_zero batch=1 num_heads=8:1 seqlen=1:20000 "
       "head_dim=128",
       "fwd fp16 k=int4 v=int4 kv_scale=group32 kv_zero batch=2 num_heads=4:1 seqlen=3:203 "
       "head_dim=72:264 lse alignment=4",
       "fwd bf16 k=int4 v=int4 kv_scale=group64 kv_zero batch=2 num_heads=4:1 seqlen=90:203 "
       "head_dim=512:40 lse alignment=4"});
  add("LowBitsWithZeroPointsAndGaps",
      {"fwd bf16 k=int4 v=int4 kv_scale=group64 kv_zero layout=bhsd" + many,
       "fwd fp16 k=int4 v=int4 kv_scale=token kv_zero page_size=24" + few},
      Inputs::kNormal, {.row = 4, .head = 4, .rows_after = 5});
  add("LowBitsOfManyQueriesWithGaps",
      {"fwd bf16 k=int8 v=int8 kv_scale=token lengths=packed page_size=16 layout=bhsd" + prefill,
       "fwd fp16 k=int4 v=e5m2 kv_scale=group64 lengths=packed causal" + prefill},
      Inputs::kNormal, gaps);
  add("Blocks", {"fwd bf16 k=q8_0 v=q8_0 page_size=16" + few, "fwd fp16 k=q4_0 v=q4_0" + many,
                 "fwd bf16 k=q8_0 v=q4_0 causal lengths=packed" + prefill,
                 "fwd fp16 k=q4_0 v=q8_0 sinks softcap=20 page_size=64" + few,
                 "fwd bf16 k=q8_0 window_left=40" + many, "fwd fp16 v=q4_0 page_size=1" + few,
                 "fwd bf16 k=q8_0 v=q8_0 batch_invariant page_size=16" + few,
                 "fwd fp16 k=q4_0 v=q4_0 batch=1 num_heads=8:1 seqlen=1:20000 head_dim=128",
                 "fwd bf16 k=q8_0 v=q8_0 batch=2 num_heads=4:1 seqlen=3:203 head_dim=32:96 lse",
                 "fwd fp16 k=q4_0 v=q8_0 batch=2 num_heads=4:1 seqlen=90:203 head_dim=256 lse",
                 "fwd bf16 k=q8_0 v=q4_0 lengths=packed page_size=16" + prefill,
                 "fwd fp16 k=q8_0 v=q8_0 blocks=64 mask_bits" + many});
  add("BlocksWithGaps",
      {"fwd bf16 k=q8_0 v=q8_0 layout=bhsd" + many,
       "fwd fp16 k=q4_0 v=q4_0 alignment=4 page_size=24" + few},
      Inputs::kNormal, {.row = 32, .head = 64, .rows_after = 5});
  for (const auto& [name, inputs] : {std::pair{"LowBitsOfLargeInputs", Inputs::kLarge},
                                     {"LowBitsOfGrowingScores", Inputs::kGrowingToFirst},
                                     {"LowBitsOfNegativeScores", Inputs::kStronglyNegative},
                                     {"LowBitsOfPositiveScores", Inputs::kStronglyPositive}}) {
    add(name,
        {"fwd bf16 k=int8 v=int8 kv_scale=token" + many,
         "fwd fp16 k=int4 v=int4 kv_scale=group64 page_size=16" + few,
         "fwd bf16 k=e4m3 v=e4m3 kv_scale=token page_size=16" + few,
         "fwd bf16 k=int4 v=int4 kv_scale=token kv_zero page_size=16" + few,
         "fwd bf16 k=q8_0 v=q4_0" + few, "fwd fp16 k=e5m2 v=e5m2 kv_scale=head" + many},
        inputs);
  }
  add("LowBitsBesideNotANumber",
      {"fwd bf16 k=e4m3 v=e4m3 kv_scale=token causal lengths=packed batch=5 num_heads=4:2 "
       "seqlen=200 head_dim=64",
       "fwd fp16 k=e5m2 v=e5m2 kv_scale=head causal lengths=packed batch=5 num_heads=4:2 "
       "seqlen=200 head_dim=64"},
      Inputs::kOddSequencesNaN);
  add("LowBitsOfLongCaches",
      {"fwd bf16 k=int8 v=int8 kv_scale=token batch=3 num_heads=32:8 seqlen=1:9000 head_dim=128 "
       "lengths=used page_size=16",
       "fwd bf16 k=int4 v=int4 kv_scale=group64 batch=1 num_heads=8:1 seqlen=1:20000 "
       "head_dim=128",
       "fwd fp16 k=e4m3 v=int4 kv_scale=token batch=2 num_heads=16:2 seqlen=4:5000 head_dim=64 "
       "lengths=used page_size=64"});
  add("LowBitsOfRowsThatWarpsShare",
      {"fwd bf16 k=int8 v=int8 kv_scale=token batch=3 num_heads=16:2 seqlen=2:1500 head_dim=128 "
       "lse",
       "fwd fp16 k=int4 v=int4 kv_scale=group32 batch=3 num_heads=16:2 seqlen=4:700 head_dim=128 "
       "lse "
       "lengths=used page_size=16",
       "fwd bf16 k=e4m3 v=e5m2 kv_scale=head batch=3 num_heads=12:1 seqlen=1:900 head_dim=64 lse "
       "window_left=300",
       "fwd bf16 k=int8 v=e4m3 kv_scale=token batch=2 num_heads=8:2 seqlen=9:400 head_dim=96 lse "
       "causal"});
  return cases;
}

/// q, k and v of e4m3: all else that a problem of these may have.
std::vector<ConformanceCase> fp8() {
  std::vector<ConformanceCase> cases;
  const auto add = [&](const char* name, std::vector<std::string> problems,
                       Inputs inputs = Inputs::kNormal, const Gaps& gaps = {}) {
    cases.push_back({name, std::move(problems), inputs, gaps});
  };
  ConformanceCase dims{"Fp8HeadDims", {}};
  const char* const scales[] = {"none", "tensor", "head"};
  for (const int head_dim : {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 208, 256}) {
    const int i = head_dim / 16;
    dims.problems.push_back(fmt::format(
        "fwd e4m3 o={} kv_scale={} batch=2 num_heads=4:2 seqlen=200:333 head_dim={} lse{}{}",
        i % 2 == 0 ? "bf16" : "fp16", scales[i % 3], head_dim, i % 4 < 2 ? " causal" : "",
        i % 5 == 0 ? " fast_sums" : ""));
  }
  cases.push_back(dims);
  const std::string few = " kv_scale=head batch=7 num_heads=8:2 seqlen=2:300 head_dim=64 lse ",
                    many = " kv_scale=head batch=5 num_heads=4:2 seqlen=200:333 head_dim=128 lse ";
  add("Fp8Windows",
      {"fwd e4m3 window_left=90 window_right=20" + many, "fwd e4m3 causal window_left=17" + few,
       "fwd e4m3 head_dim=192:128 causal "
       "batch=2 num_heads=4 seqlen=300"});
  add("Fp8Lengths",
      {"fwd e4m3 lengths=packed causal" + many, "fwd e4m3 lengths=packed fast_sums" + many,
       "fwd e4m3 lengths=used" + few, "fwd e4m3 lengths=used page_size=16" + few,
       "fwd e4m3 lengths=used page_size=64 causal" + many,
       "fwd e4m3 lengths=packed page_size=24" + many});
  add("Fp8WithGaps", {"fwd e4m3 layout=bhsd" + many, "fwd e4m3 o=fp16" + many}, Inputs::kNormal,
      Gaps{.row = 2, .head = 1, .rows_after = 5});
  const std::string
      token_few = " kv_scale=token batch=7 num_heads=8:2 seqlen=2:300 head_dim=64 lse ",
      token = " kv_scale=token batch=5 num_heads=4:2 seqlen=200:333 head_dim=128 lse ";
  add("Fp8ScalesOfTokens",
      {"fwd e4m3" + token, "fwd e4m3 causal" + token, "fwd e4m3 causal" + token_few,
       "fwd e4m3 fast_sums o=fp16" + token, "fwd e4m3 window_left=90 window_right=20" + token,
       "fwd e4m3 lengths=packed causal" + token, "fwd e4m3 lengths=used" + token_few,
       "fwd e4m3 lengths=used page_size=16" + token_few,
       "fwd e4m3 lengths=packed page_size=24 causal" + token,
       "fwd e4m3 kv_scale=token batch=2 num_heads=6:2 seqlen=300:700 head_dim=256 causal",
       "fwd e4m3 kv_scale=token batch=1 num_heads=28:4 seqlen=5:9000 head_dim=48 lse"});
  add("Fp8ScalesOfTokensWithGaps",
      {"fwd e4m3 layout=bhsd" + token, "fwd e4m3 lengths=used page_size=64" + token},
      Inputs::kNormal, Gaps{.row = 2, .head = 1, .rows_after = 5});
  add("Fp8ScalesOfTokensOfGrowingScores", {"fwd e4m3 causal" + token, "fwd e4m3" + token_few},
      Inputs::kGrowingToFirst);
  add("Fp8ScalesOfTokensBesideNotANumber", {"fwd e4m3 causal lengths=packed" + token},
      Inputs::kOddSequencesNaN);
  add("Fp8Sinks", {"fwd e4m3 sinks" + few, "fwd e4m3 sinks causal" + many});
  for (const auto& [name, inputs] : {std::pair{"Fp8OfLargeInputs", Inputs::kLarge},
                                     {"Fp8OfGrowingScores", Inputs::kGrowingToFirst},
                                     {"Fp8OfNegativeScores", Inputs::kStronglyNegative},
                                     {"Fp8OfPositiveScores", Inputs::kStronglyPositive}})
    add(name, {"fwd e4m3" + many, "fwd e4m3 causal" + few}, inputs);
  add("Fp8BesideNotANumber", {"fwd e4m3 causal lengths=packed" + many}, Inputs::kOddSequencesNaN);
  add("Fp8OfLongSums", {"fwd e4m3 batch=1 num_heads=8:2 seqlen=64:30000 head_dim=128 lse",
                        "fwd e4m3 batch=1 num_heads=2 seqlen=300:9000 head_dim=256 lse"});
  return cases;
}

/// Caches in pages: lengths around the ends of pages, with all else that a problem may have. What
/// lies after a length and in free pages is NaN and infinities.
std::vector<ConformanceCase> pages() {
  std::vector<ConformanceCase> cases;
  for (const int page : {1, 2, 4, 8, 16, 24, 64, 128, 256}) {
    ConformanceCase c{fmt::format("PagesOf{}", page), {}};
    const std::string used = fmt::format(" lengths=used page_size={} ", page);
    for (const char* problem :
         {"fwd bf16 batch=7 num_heads=8:2 seqlen=1:700 head_dim=128 lse",
          "fwd fp16 batch=7 num_heads=16:1 seqlen=3:520 head_dim=64 causal lse layout=bhsd",
          "fwd bf16 batch=7 num_heads=4:2 seqlen=150:333 head_dim=64 causal lse",
          "fwd fp16 batch=6 num_heads=2 seqlen=300 head_dim=128 window_left=9 lse",
          "fwd fp32 batch=6 num_heads=4:2 seqlen=70:300 head_dim=64 causal lse"})
      c.problems.push_back(problem + used);
    cases.push_back(c);
  }
  const std::string few = " batch=7 num_heads=8:2 seqlen=2:300 head_dim=64 lse lengths=used ",
                    many = " batch=5 num_heads=4:2 seqlen=200:333 head_dim=128 lse lengths=used ";
  const Gaps gaps{.row = 3, .head = 1, .rows_after = 5};
  const auto add = [&](const char* name, std::vector<std::string> problems,
                       Inputs inputs = Inputs::kNormal, const Gaps& with_gaps = {}) {
    cases.push_back({name, std::move(problems), inputs, with_gaps});
  };
  add("PagesWithWindowsInsideOfOne",
      {"fwd bf16" + few + "page_size=64 window_left=5",
       "fwd fp16" + few + "page_size=256 window_left=20",
       "fwd bf16" + many + "page_size=128 window_left=3 window_right=2",
       "fwd fp16" + many + "page_size=16 window_left=17 causal"});
  add("PagesWithScores",
      {"fwd bf16" + few + "page_size=16 softcap=20",
       "fwd fp16" + many + "page_size=64 softcap=2 causal", "fwd bf16" + few + "page_size=32 sinks",
       "fwd fp16" + many + "page_size=16 sinks causal"});
  add("PagesOfOddHeadDims",
      {"fwd bf16 batch=6 num_heads=4:2 seqlen=150:203 head_dim=192:128 lengths=used page_size=16 "
       "causal",
       "fwd fp16 batch=6 num_heads=4:1 seqlen=3:500 head_dim=72 lengths=used page_size=64 lse",
       "fwd bf16 batch=6 num_heads=2 seqlen=70:203 head_dim=256 lengths=used page_size=24 lse",
       "fwd bf16 batch=6 num_heads=8:1 seqlen=2:300 head_dim=512:40 lengths=used page_size=16",
       "fwd fp16 batch=6 num_heads=2:1 seqlen=150:203 head_dim=40:104 lengths=used page_size=8 "
       "lse"});
  add("PagesWithGapsAndOddStrides",
      {"fwd bf16" + few + "page_size=16 layout=bhsd", "fwd fp16" + many + "page_size=64",
       "fwd bf16" + few + "page_size=24 alignment=4",
       "fwd fp16" + many + "page_size=16 alignment=2 layout=bhsd",
       "fwd fp32" + many + "page_size=40 alignment=8"},
      Inputs::kNormal, gaps);
  add("PagesLargerThanTheBound",
      {"fwd bf16 batch=5 num_heads=4:2 seqlen=3:100 head_dim=64 lengths=used page_size=1024 lse",
       "fwd fp16 batch=5 num_heads=4:2 seqlen=130:100 head_dim=128 lengths=used page_size=176 "
       "lse"});
  add("PagesBesideNotANumber",
      {"fwd bf16" + few + "page_size=16 causal", "fwd fp16" + many + "page_size=64"},
      Inputs::kOddSequencesNaN);
  add("PagesAndGrowingScores", {"fwd bf16" + many + "page_size=16 causal"},
      Inputs::kGrowingToFirst);
  add("PagesOfPackedQueries",
      {"fwd bf16 batch=7 num_heads=8:2 seqlen=90:700 head_dim=128 lengths=packed page_size=16 "
       "causal "
       "lse",
       "fwd fp16 batch=7 num_heads=16:2 seqlen=3:500 head_dim=64 lengths=packed page_size=64 lse",
       "fwd bf16 batch=6 num_heads=4:2 seqlen=200:333 tokens=700:0 head_dim=64 lengths=packed "
       "page_size=24 window_left=40 lse",
       "fwd fp16 batch=6 num_heads=4 seqlen=200:333 head_dim=128 lengths=packed page_size=128 "
       "sinks "
       "softcap=20",
       "fwd fp32 batch=6 num_heads=4:2 seqlen=70:300 head_dim=64 lengths=packed page_size=8 lse"});
  add("PagesOfPackedQueriesWithGaps",
      {"fwd bf16 batch=6 num_heads=4:2 seqlen=150:333 head_dim=64 lengths=packed page_size=16 "
       "causal "
       "layout=bhsd lse",
       "fwd fp16 batch=6 num_heads=4:2 seqlen=150:333 head_dim=72 lengths=packed page_size=64 "
       "alignment=4"},
      Inputs::kNormal, gaps);
  add("PagesOfNothing",
      {"fwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64 lengths=used page_size=16 lse",
       "fwd bf16 batch=0 num_heads=2 seqlen=70 head_dim=64 lengths=used page_size=16 lse",
       "fwd bf16 batch=2 num_heads=2 seqlen=0:70 head_dim=64 lengths=used page_size=16 lse"});
  return cases;
}

/// Blocks of every size, with all else that a problem may have.
std::vector<ConformanceCase> block_masks() {
  const std::string sizes = " batch=2 num_heads=4:2 seqlen=300:500 head_dim=64 lse ",
                    large = " batch=2 num_heads=4:2 seqlen=400 head_dim=128 lse ";
  std::vector<ConformanceCase> cases;
  for (const int block : {16, 32, 64, 128}) {
    ConformanceCase c{fmt::format("BlocksOf{}", block), {}};
    for (const char* options :
         {"density=0.5", "density=0.1 causal mask_heads=4", "density=0.9 mask_bits mask_heads=2",
          "density=0.3 mask_bits causal mask_batch=2 mask_heads=4"}) {
      c.problems.push_back(fmt::format("fwd bf16{}blocks={} {}", sizes, block, options));
      c.problems.push_back(fmt::format("fwd fp16{}blocks={} {}", large, block, options));
    }
    cases.push_back(c);
  }
  const std::string blocks = "blocks=64:32 mask_bits mask_heads=2 density=0.4 ";
  std::vector<std::string> few, unequal;
  for (const char* of : {"16", "64:128", "128:64", "128"})
    few.push_back(fmt::format("fwd bf16{}blocks={} mask_heads=2", sizes, of));
  for (const char* of : {"128:16", "16:128", "32:64", "64:16", "128:32", "64:128"})
    unequal.push_back(fmt::format("fwd fp16{}blocks={} mask_bits causal", sizes, of));
  const auto add = [&](const char* name, std::vector<std::string> problems,
                       Blocks present = Blocks::kRandom, const Gaps& gaps = {},
                       Inputs inputs = Inputs::kNormal) {
    cases.push_back({name, std::move(problems), inputs, gaps, 0, present});
  };
  add("BlocksOfUnequalSizes", unequal);
  add("BlocksNonePresent", few, Blocks::kNone);
  add("BlocksSinglePresent", few, Blocks::kSingle);
  add("BlocksOneHotRow", few, Blocks::kOneHotRow);
  add("BlocksCheckerboard", few, Blocks::kCheckerboard);
  add("BlocksAllPresent", few, Blocks::kAll);
  add("BlocksWithBitsOfEveryPattern",
      {"fwd bf16" + sizes + "blocks=16 mask_bits",
       "fwd bf16" + sizes + "blocks=64 mask_bits causal",
       "fwd bf16" + large + "blocks=128 mask_bits"},
      Blocks::kCheckerboard);
  add("BlocksWithWindowsAndSoftcap",
      {"fwd bf16" + sizes + blocks + "window_left=50 window_right=20",
       "fwd fp16" + sizes + blocks + "window_left=100 causal softcap=20",
       "fwd bf16" + large + blocks + "softcap=30"});
  add("BlocksWithRaggedEnds",
      {"fwd bf16 batch=1 num_heads=2 seqlen=129:257 head_dim=64 lse blocks=128",
       "fwd fp16 batch=1 num_heads=2 seqlen=127:63 head_dim=128 lse blocks=64 mask_bits",
       "fwd bf16 batch=1 num_heads=2 seqlen=33:17 head_dim=64 causal blocks=16"},
      Blocks::kAll);
  add("BlocksWithMoreQueriesThanKeys",
      {"fwd bf16 batch=1 num_heads=4:2 seqlen=300:70 head_dim=128 causal lse blocks=32",
       "fwd fp16 batch=2 num_heads=2 seqlen=500:10 head_dim=64 causal lse blocks=64:16"});
  add("BlocksOfFewQueries",
      {"fwd bf16 batch=3 num_heads=8:1 seqlen=1:1001 head_dim=128 causal lse blocks=16:64",
       "fwd fp16 batch=2 num_heads=16:2 seqlen=5:700 head_dim=64 lse blocks=64 mask_heads=2"});
  add("BlocksWithGqa",
      {"fwd bf16 batch=2 num_heads=16:2 seqlen=140:190 head_dim=128 lse blocks=64 mask_heads=2",
       "fwd fp16 batch=2 num_heads=6:2 seqlen=200 head_dim=64 causal blocks=32 mask_heads=6",
       "fwd bf16 batch=2 num_heads=5:1 seqlen=90:210 head_dim=64 lse blocks=16 mask_batch=2"});
  add("BlocksWithLengths",
      {"fwd bf16 batch=5 num_heads=4:2 seqlen=200:333 head_dim=64 lse lengths=packed blocks=32",
       "fwd fp16 batch=5 num_heads=4:2 seqlen=200:333 head_dim=64 lse lengths=used causal "
       "blocks=64:16 mask_bits mask_batch=5 mask_heads=2",
       "fwd bf16 batch=4 num_heads=4:2 seqlen=300 head_dim=128 lengths=packed causal blocks=128 "
       "mask_batch=4"});
  add("BlocksWithRope", {"fwd bf16" + sizes + blocks + "rope=half causal",
                         "fwd fp16" + large + "blocks=128 rope=interleaved"});
  add("BlocksWithGapsAndOddStrides",
      {"fwd bf16 batch=2 num_heads=4:2 seqlen=150 head_dim=72 causal lse layout=bhsd alignment=4 "
       "blocks=32",
       "fwd fp16 batch=2 num_heads=4:2 seqlen=150 head_dim=64 layout=packed_qkv blocks=64 "
       "mask_bits"},
      Blocks::kRandom, {.row = 3, .head = 1, .rows_after = 5});
  add("BlocksOfOddHeadDims",
      {"fwd bf16 batch=1 num_heads=2 seqlen=150:250 head_dim=192:128 causal lse blocks=64",
       "fwd fp16 batch=1 num_heads=2:1 seqlen=130:200 head_dim=40:72 blocks=32 mask_bits",
       "fwd bf16 batch=1 num_heads=2 seqlen=150:250 head_dim=256 lse blocks=128"});
  add("BlocksOfFp32",
      {"fwd fp32" + sizes + blocks + "causal", "fwd fp32" + large + "blocks=128 tf32",
       "fwd fp32" + sizes + "blocks=16 mask_heads=4"});
  add("BlocksAndGrowingScores", {"fwd bf16" + large + "blocks=64 causal density=0.3"},
      Blocks::kRandom, {}, Inputs::kGrowingToFirst);
  add("BlocksOfNothing", {"fwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64 lse blocks=64",
                          "fwd bf16 batch=0 num_heads=2 seqlen=70 head_dim=64 lse blocks=64",
                          "fwd bf16 batch=2 num_heads=2 seqlen=0:70 head_dim=64 lse blocks=64"});
  return cases;
}

/// A score without a value in each row, with all else that a problem may have.
std::vector<ConformanceCase> sinks() {
  const std::string sizes = " batch=2 num_heads=8:2 seqlen=200:333 head_dim=64 lse sinks ",
                    large = " batch=1 num_heads=6 seqlen=400 head_dim=128 sinks ",
                    blocks = "blocks=64:32 mask_bits mask_heads=2 density=0.4 ";
  const Gaps gaps{.row = 3, .head = 1, .rows_after = 5};
  const std::vector<std::string> ragged = {"fwd bf16" + sizes + "causal",
                                           "fwd fp16" + large + "lse"};
  return {
      {"Sinks",
       {"fwd bf16" + sizes, "fwd fp16" + sizes + "causal", "fwd bf16" + large + "causal lse",
        "fwd fp16" + large, "fwd fp32" + sizes + "causal", "fwd fp32" + large + "tf32 lse"}},
      {"SinksOfFewQueriesAndManyHeads",
       {"fwd bf16 batch=3 num_heads=16:2 seqlen=1:1001 head_dim=128 causal lse sinks",
        "fwd fp16 batch=2 num_heads=8:1 seqlen=3:777 head_dim=64 causal lse sinks",
        "fwd bf16 batch=1 num_heads=6:2 seqlen=7:333 head_dim=128 lse sinks",
        "fwd fp32 batch=2 num_heads=12:2 seqlen=5:300 head_dim=64 lse sinks"}},
      {"SinksOfRowsThatSeeNothing",
       {"fwd bf16 batch=1 num_heads=12:4 seqlen=300:70 head_dim=128 causal lse sinks",
        "fwd fp16 batch=1 num_heads=6 seqlen=200:50 head_dim=64 window_left=4 window_right=4 lse "
        "sinks",
        "fwd bf16 batch=2 num_heads=6 seqlen=70:0 head_dim=64 lse sinks",
        "fwd fp32 batch=1 num_heads=6 seqlen=300:70 head_dim=64 causal lse sinks",
        "fwd bf16 batch=0 num_heads=2 seqlen=70 head_dim=64 lse sinks"}},
      {"SinksWithWindowsAndSoftcap",
       {"fwd bf16" + sizes + "window_left=50 causal", "fwd fp16" + sizes + "softcap=2",
        "fwd bf16" + sizes + "window_left=17 window_right=33 softcap=20 softmax_scale=1"}},
      {"SinksWithLengths",
       {"fwd bf16" + sizes + "lengths=packed causal", "fwd fp16" + sizes + "lengths=used",
        "fwd bf16" + large + "lengths=packed lse", "fwd fp32" + sizes + "lengths=packed",
        "fwd bf16 batch=9 num_heads=16:2 seqlen=3:700 head_dim=128 lengths=used causal lse sinks"}},
      {"SinksWithBlocks",
       {"fwd bf16" + sizes + blocks, "fwd fp16" + sizes + blocks + "causal",
        "fwd bf16" + large + "blocks=128 density=0.2 lse",
        "fwd fp16" + sizes + "blocks=16 density=0.1 lengths=used"}},
      {"SinksWithRope",
       {"fwd bf16" + sizes + "rope=half causal", "fwd fp16" + large + "rope=interleaved lse"}},
      {"SinksOfOddHeadDims",
       {"fwd bf16 batch=1 num_heads=6:2 seqlen=150:250 head_dim=192:128 causal lse sinks",
        "fwd fp16 batch=1 num_heads=6:1 seqlen=130:200 head_dim=40:72 sinks",
        "fwd bf16 batch=1 num_heads=6:3 seqlen=70:90 head_dim=512:40 lse sinks"}},
      {"SinksWithGapsAndOddStrides",
       {"fwd bf16 batch=2 num_heads=12:6 seqlen=150 head_dim=72 causal lse sinks layout=bhsd "
        "alignment=4",
        "fwd fp16 batch=2 num_heads=6:2 seqlen=150 head_dim=64 sinks layout=packed_qkv "
        "alignment=2"},
       Inputs::kNormal,
       gaps},
      {"SinksAndStronglyNegativeScores", ragged, Inputs::kStronglyNegative},
      {"SinksAndStronglyPositiveScores", ragged, Inputs::kStronglyPositive},
      {"SinksAndGrowingScores", ragged, Inputs::kGrowingToFirst},
      {"SinksAndLargeInputs", ragged, Inputs::kLarge},
      {"SinksAndScoresOfMinusInfinity", ragged, Inputs::kInfiniteKeys},
      {"SinksOfOtherDtypes",
       {"fwd q=bf16 k=fp16 v=fp32 o=fp32 batch=1 num_heads=6 seqlen=70:90 head_dim=40:24 lse "
        "sinks"}},
  };
}

std::vector<ConformanceCase> memory() {
  const std::string sizes = " batch=2 num_heads=4:2 seqlen=150 head_dim=72 causal lse ";
  std::vector<ConformanceCase> cases;
  const Gaps gaps{.row = 3, .head = 1, .rows_after = 5};
  for (const auto& [name, layout] : {std::pair("Bshd", "bshd"), std::pair("Bhsd", "bhsd"),
                                     std::pair("PackedQkv", "packed_qkv")}) {
    const std::vector<std::string> problems = {"fwd bf16" + sizes + "layout=" + layout};
    cases.push_back({fmt::format("Layout{}", name), problems});
    cases.push_back({fmt::format("Layout{}WithGaps", name), problems, Inputs::kNormal, gaps});
  }
  for (const int alignment : {2, 4, 8}) {
    ConformanceCase c{
        fmt::format("Alignment{}WithOddStrides", alignment), {}, Inputs::kNormal, gaps};
    for (const char* layout : {"bshd", "bhsd"}) {
      c.problems.push_back(fmt::format("fwd {}{}layout={} alignment={}",
                                       alignment == 8 ? "bf16" : "fp16", sizes, layout, alignment));
    }
    cases.push_back(c);
  }
  return cases;
}

}  // namespace

void PrintTo(const ConformanceCase& c, std::ostream* out) {
  for (const std::string& problem : c.problems) *out << "\n  " << problem;
}

std::vector<ConformanceCase> conformance_cases() {
  std::vector<ConformanceCase> cases = edges();
  for (auto* more : {&masks_and_scores, &ropes, &lengths, &pages, &low_bits, &fp8, &block_masks,
                     &sinks, &memory, &fp32}) {
    for (ConformanceCase& c : (*more)()) cases.push_back(std::move(c));
  }
  add_head_dims(cases);
  cases.push_back({"LongPrefill",
                   {"fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal lse"},
                   Inputs::kNormal,
                   {},
                   300});
  cases.push_back({"LongKeys",
                   {"fwd fp16 batch=1 num_heads=4:1 seqlen=130:40000 head_dim=64 causal lse"},
                   Inputs::kNormal,
                   {},
                   200});
  return cases;
}

}  // namespace attnforge::test
