// backward_cases.cpp - the hard cases of gradients. Small problems: they are about edges.
#include <fmt/format.h>

#include <utility>

#include "tests/conformance/cases.h"

namespace attnforge::test {
namespace {

using Cases = std::vector<ConformanceCase>;

constexpr Gaps kGaps{.row = 3, .head = 1, .rows_after = 5};

void add_to(Cases& cases, const char* name, std::vector<std::string> problems,
            Inputs inputs = Inputs::kNormal, const Gaps& gaps = {}) {
  cases.push_back({name, std::move(problems), inputs, gaps});
}

/// Eight head dims a test, all from 8 to 256; dtype, mask and options change from one to the next.
Cases head_dims() {
  Cases cases;
  for (int from = 8; from <= 256; from += 64) {
    ConformanceCase c;
    c.name = fmt::format("HeadDims{}To{}", from, from + 56);
    for (int head_dim = from; head_dim < from + 64; head_dim += 8) {
      const int i = head_dim / 8;
      c.problems.push_back(fmt::format("bwd {} batch=1 num_heads=2:1 seqlen=150:{} head_dim={}{}{}",
                                       i % 2 == 0 ? "bf16" : "fp16", i % 3 == 0 ? 150 : 203,
                                       head_dim, i % 4 < 2 ? " causal" : "",
                                       i % 3 == 1 ? " deterministic" : ""));
    }
    cases.push_back(c);
  }
  return cases;
}

Cases sizes() {
  Cases cases;
  ConformanceCase around{"SeqlensAround64", {}};
  ConformanceCase around_128{"SeqlensAround128", {}};
  for (const auto& [q, kv] : {std::pair(1, 1), std::pair(1, 64), std::pair(63, 63),
                              std::pair(64, 65), std::pair(65, 64), std::pair(63, 1)}) {
    const char* dtype = around.problems.size() % 2 == 0 ? "bf16" : "fp16";
    const char* mask = around.problems.size() % 3 == 1 ? " causal" : "";
    around.problems.push_back(
        fmt::format("bwd {} batch=2 num_heads=2:1 seqlen={}:{} head_dim=64{}", dtype, q, kv, mask));
    around_128.problems.push_back(fmt::format(
        "bwd {} batch=1 num_heads=2 seqlen={}:{} head_dim=128{}", dtype, q + 64, kv + 64, mask));
  }
  cases.push_back(around), cases.push_back(around_128);
  add_to(cases, "OneQueryManyKeys",
         {"bwd bf16 batch=3 num_heads=8:1 seqlen=1:1001 head_dim=128 causal",
          "bwd fp16 batch=2 num_heads=4:2 seqlen=3:700 head_dim=64 deterministic"});
  add_to(cases, "ManyQueriesOneKey",
         {"bwd fp16 batch=1 num_heads=2 seqlen=200:1 head_dim=64",
          "bwd bf16 batch=1 num_heads=4:1 seqlen=700:3 head_dim=128 causal deterministic"});
  add_to(cases, "RaggedTails",
         {"bwd bf16 batch=2 num_heads=2 seqlen=129:257 head_dim=128",
          "bwd fp16 batch=1 num_heads=3 seqlen=127:63 head_dim=64",
          "bwd bf16 batch=1 num_heads=2 seqlen=100:321 head_dim=96 causal"});
  add_to(cases, "TilesThatFitExactly",
         {"bwd bf16 batch=1 num_heads=2 seqlen=256 head_dim=128 causal",
          "bwd fp16 batch=1 num_heads=2 seqlen=384:512 head_dim=64",
          "bwd bf16 batch=1 num_heads=4:2 seqlen=512 head_dim=64 causal deterministic"});
  add_to(cases, "ManyTiles",
         {"bwd bf16 batch=2 num_heads=8 seqlen=700:900 head_dim=64 causal",
          "bwd fp16 batch=1 num_heads=8:2 seqlen=1000 head_dim=128 causal deterministic"});
  add_to(cases, "SeqlenQLongerThanKvCausal",
         {"bwd bf16 batch=1 num_heads=4:2 seqlen=300:70 head_dim=128 causal",
          "bwd fp16 batch=2 num_heads=2 seqlen=500:10 head_dim=64 causal deterministic"});
  add_to(cases, "SeqlenKvLongerThanQ",
         {"bwd bf16 batch=1 num_heads=4:2 seqlen=70:300 head_dim=128 causal",
          "bwd fp16 batch=2 num_heads=2 seqlen=10:500 head_dim=64"});
  add_to(cases, "RowsThatSeeNoKeyByWindow",
         {"bwd fp16 batch=1 num_heads=2 seqlen=200:50 head_dim=64 window_left=4 window_right=4",
          "bwd bf16 batch=1 num_heads=4:2 seqlen=300:40 head_dim=128 window_left=9 causal dlse"});
  add_to(cases, "KeysThatNoRowSees",
         {"bwd bf16 batch=1 num_heads=2 seqlen=30:400 head_dim=64 window_left=20 causal",
          "bwd fp16 batch=1 num_heads=4:1 seqlen=5:300 head_dim=128 window_left=3 window_right=1 "
          "deterministic"});
  add_to(cases, "Gqa8To1",
         {"bwd bf16 batch=2 num_heads=16:2 seqlen=140:190 head_dim=128 causal",
          "bwd fp16 batch=1 num_heads=8:1 seqlen=3:777 head_dim=64 causal",
          "bwd bf16 batch=1 num_heads=16:2 seqlen=200 head_dim=64 deterministic"});
  add_to(cases, "Gqa7To1",
         {"bwd bf16 batch=2 num_heads=14:2 seqlen=190 head_dim=128 causal deterministic",
          "bwd fp16 batch=3 num_heads=7:1 seqlen=140:260 head_dim=64 lengths=packed causal",
          "bwd bf16 batch=2 num_heads=14:2 seqlen=150 head_dim=192:128 lengths=used causal",
          "bwd bf16 batch=1 num_heads=7:1 seqlen=0:150 head_dim=64",
          "bwd fp16 batch=2 num_heads=14:2 seqlen=90:140 head_dim=72 layout=bhsd gradients=fp32 "
          "accumulate"});
  add_to(cases, "Gqa71To1",
         {"bwd bf16 batch=1 num_heads=71:1 seqlen=200 head_dim=64 causal",
          "bwd bf16 batch=2 num_heads=71:1 seqlen=130 head_dim=64 lengths=packed deterministic"});
  add_to(cases, "Gqa3To1", {"bwd bf16 batch=1 num_heads=6:2 seqlen=7:333 head_dim=128 causal"});
  add_to(cases, "Mqa",
         {"bwd fp16 batch=2 num_heads=5:1 seqlen=90:210 head_dim=64",
          "bwd bf16 batch=1 num_heads=12:1 seqlen=130 head_dim=128 causal deterministic"});
  add_to(cases, "ManyHeadsAndBatches",
         {"bwd bf16 batch=7 num_heads=12:4 seqlen=33:65 head_dim=32 causal"});
  // More blocks than SMs: they set sums of later heads to zeros.
  add_to(cases, "ManyHeads",
         {"bwd bf16 batch=40 num_heads=16:8 seqlen=70:150 head_dim=64 causal",
          "bwd fp16 batch=100 num_heads=4 seqlen=90:40 head_dim=128",
          "bwd bf16 batch=50 num_heads=8:4 seqlen=40:70 head_dim=192"});
  add_to(cases, "NoBatch", {"bwd bf16 batch=0 num_heads=2 seqlen=64 head_dim=64"});
  add_to(cases, "NoQueries",
         {"bwd bf16 batch=1 num_heads=2 seqlen=0:64 head_dim=64",
          "bwd fp16 batch=2 num_heads=4:2 seqlen=0:7 head_dim=128:40 accumulate"});
  add_to(cases, "NoKeys",
         {"bwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64",
          "bwd fp16 batch=1 num_heads=1 seqlen=5:0 head_dim=128:40 causal accumulate"});
  add_to(cases, "UnequalHeadDims",
         {"bwd bf16 batch=1 num_heads=2 seqlen=150:250 head_dim=192:128 causal",
          "bwd fp16 batch=1 num_heads=2 seqlen=130:200 head_dim=64:256",
          "bwd bf16 batch=1 num_heads=2 seqlen=130:200 head_dim=256:64 deterministic",
          "bwd bf16 batch=1 num_heads=2 seqlen=70:90 head_dim=8:256",
          "bwd fp16 batch=1 num_heads=2:1 seqlen=70:90 head_dim=40:72 causal"});
  add_to(cases, "DtypesOfAllKinds",
         {"bwd fp32 batch=1 num_heads=2 seqlen=100:150 head_dim=64 causal",
          "bwd fp16 batch=1 num_heads=2 seqlen=100:150 head_dim=64 causal",
          "bwd q=bf16 k=fp16 v=fp32 o=fp32 batch=1 num_heads=2 seqlen=70:90 head_dim=40:24",
          "bwd q=bf16 k=bf16 v=bf16 o=fp32 batch=1 num_heads=2 seqlen=70:90 head_dim=128"});
  return cases;
}

/// Words of backward alone, and what they make of each other.
Cases words() {
  const std::string few = " batch=2 num_heads=4:2 seqlen=150:203 head_dim=64 ",
                    many = " batch=1 num_heads=8:2 seqlen=333:300 head_dim=128 causal ";
  Cases cases;
  for (const auto& [name, options] :
       {std::pair("OfLseToo", "dlse"), std::pair("Accumulate", "accumulate"),
        std::pair("GradientsOfFp32", "gradients=fp32"), std::pair("Deterministic", "deterministic"),
        std::pair("AccumulateInFp32", "accumulate gradients=fp32"),
        std::pair("AllWords", "dlse accumulate gradients=fp32 deterministic"),
        std::pair("AccumulateDeterministically", "accumulate deterministic dlse")}) {
    ConformanceCase c{name, {}};
    for (const char* dtype : {"bf16", "fp16"}) {
      c.problems.push_back(fmt::format("bwd {}{}{}", dtype, few, options));
      c.problems.push_back(fmt::format("bwd {}{}{}", dtype, many, options));
    }
    cases.push_back(c);
  }
  add_to(cases, "WordsOfRowsThatSeeNoKey",
         {"bwd bf16 batch=1 num_heads=2 seqlen=300:70 head_dim=64 causal dlse accumulate",
          "bwd fp16 batch=1 num_heads=4:1 seqlen=200:33 head_dim=128 causal gradients=fp32 dlse "
          "deterministic",
          "bwd bf16 batch=1 num_heads=2 seqlen=30:400 head_dim=64 window_left=20 causal "
          "accumulate"});
  return cases;
}

Cases masks_and_scores() {
  const std::string sizes = " batch=1 num_heads=4:2 seqlen=200:333 head_dim=64 ";
  const std::vector<std::string> ragged = {
      "bwd bf16 batch=1 num_heads=2 seqlen=65:129 head_dim=128",
      "bwd fp16 batch=1 num_heads=2 seqlen=130:70 head_dim=64 causal",
      "bwd bf16 batch=1 num_heads=2 seqlen=200 head_dim=256 causal deterministic"};
  const std::vector<std::string> far = {
      // lse of -500 and below, or 500 and above
      "bwd bf16 batch=1 num_heads=2 seqlen=65:129 head_dim=128 softmax_scale=0.5",
      "bwd fp16 batch=1 num_heads=2 seqlen=130:70 head_dim=64 causal softmax_scale=1"};
  const std::vector<std::string> growing = {
      "bwd bf16 batch=1 num_heads=2 seqlen=700 head_dim=128 causal",
      "bwd fp16 batch=1 num_heads=2 seqlen=200:700 head_dim=64"};
  Cases cases;
  add_to(cases, "Windows",
         {"bwd bf16" + sizes + "window_left=50", "bwd fp16" + sizes + "window_right=50",
          "bwd bf16" + sizes + "window_left=0 causal",
          "bwd fp16" + sizes + "window_left=128 window_right=0 deterministic",
          "bwd bf16" + sizes + "window_left=17 window_right=33",
          "bwd bf16" + sizes + "window_left=1000 window_right=1000",
          "bwd bf16 batch=1 num_heads=2 seqlen=1000 head_dim=128 window_left=100 causal"});
  add_to(cases, "Softcap",
         {"bwd bf16" + sizes + "softcap=30", "bwd fp16" + sizes + "softcap=2 causal",
          "bwd bf16" + sizes + "softcap=50 window_left=40 window_right=3 deterministic"});
  add_to(cases, "SoftcapOfLargeScores", {"bwd bf16" + sizes + "softcap=20 causal"}, Inputs::kLarge);
  add_to(
      cases, "SoftmaxScale",
      {"bwd bf16" + sizes + "softmax_scale=0.03 causal", "bwd fp16" + sizes + "softmax_scale=1"});
  add_to(cases, "StronglyNegativeScores", ragged, Inputs::kStronglyNegative);
  add_to(cases, "StronglyPositiveScores", ragged, Inputs::kStronglyPositive);
  add_to(cases, "LseFarBelow", far, Inputs::kStronglyNegative);
  add_to(cases, "LseFarAbove", far, Inputs::kStronglyPositive);
  add_to(cases, "ScoresGrowTowardsTheFirstKey", growing, Inputs::kGrowingToFirst);
  add_to(cases, "ScoresGrowTowardsTheLastKey", growing, Inputs::kGrowingToLast);
  add_to(cases, "LargeInputs", ragged, Inputs::kLarge);
  add_to(cases, "ExtremeScores", far, Inputs::kLarge);
  add_to(cases, "EqualScores", ragged, Inputs::kEqualScores);
  return cases;
}

/// Sequences of any length, each with an empty one, a full one and one of a single row.
Cases lengths() {
  const std::string sizes = " batch=5 num_heads=4:2 seqlen=200:333 head_dim=64 ",
                    large = " batch=4 num_heads=4:2 seqlen=300 head_dim=128 ";
  Cases cases;
  for (const auto& [name, word] :
       {std::pair("Packed", "lengths=packed "), std::pair("Used", "lengths=used ")}) {
    ConformanceCase masks{fmt::format("{}Masks", name), {}};
    for (const char* options :
         {"", "causal", "window_left=50 window_right=20", "window_left=100 causal softcap=20",
          "deterministic", "dlse accumulate gradients=fp32 causal"}) {
      const char* dtype = masks.problems.size() % 2 == 0 ? "bf16" : "fp16";
      masks.problems.push_back(fmt::format("bwd {}{}{}{}", dtype, sizes, word, options));
    }
    cases.push_back(masks);
    const std::vector<std::string> dims = {
        fmt::format("bwd bf16{}{}", large, word),
        fmt::format("bwd fp16{}{}causal deterministic", large, word),
        fmt::format("bwd bf16 batch=3 num_heads=2 seqlen=150:203 head_dim=256 causal {}", word),
        fmt::format("bwd fp16 batch=3 num_heads=2:1 seqlen=150:203 head_dim=192:128 causal {}",
                    word),
        fmt::format("bwd bf16 batch=3 num_heads=2 seqlen=150 head_dim=72 {}", word)};
    cases.push_back({fmt::format("{}HeadDims", name), dims});
    const std::vector<std::string> layouts = {
        fmt::format("bwd bf16 batch=3 num_heads=4:2 seqlen=150 head_dim=64 layout=bhsd {}", word),
        fmt::format("bwd fp16 batch=3 num_heads=4:2 seqlen=150 head_dim=64 layout=packed_qkv "
                    "causal {}",
                    word),
        fmt::format("bwd bf16 batch=3 num_heads=4:2 seqlen=150 head_dim=72 alignment=4 causal "
                    "accumulate {}",
                    word)};
    cases.push_back({fmt::format("{}Layouts", name), layouts, Inputs::kNormal, kGaps});
  }
  add_to(cases, "PackedWithRoomLeft",
         {"bwd bf16 batch=6 num_heads=4:2 seqlen=200 tokens=700 head_dim=64 lengths=packed causal",
          "bwd fp16 batch=6 num_heads=4:2 seqlen=200:300 tokens=300:900 head_dim=128 "
          "lengths=packed deterministic"});
  add_to(cases, "PackedFewQueries",
         {"bwd bf16 batch=9 num_heads=16:2 seqlen=3:700 head_dim=128 lengths=packed causal"});
  add_to(cases, "PackedManySequences",
         {"bwd bf16 batch=70 num_heads=8:4 seqlen=130 head_dim=64 lengths=packed causal",
          "bwd fp16 batch=70 num_heads=4 seqlen=130 head_dim=128 lengths=packed deterministic"});
  // Each row sees a key, and each key is seen: of a NaN nothing else is 0 times that.
  add_to(cases, "PackedBesideNotANumber",
         {"bwd bf16" + sizes + "lengths=packed",
          "bwd fp16" + large + "lengths=packed layout=packed_qkv"},
         Inputs::kOddSequencesNaN);
  add_to(cases, "LengthsOfNothing",
         {"bwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64 lengths=packed",
          "bwd bf16 batch=0 num_heads=2 seqlen=70 head_dim=64 lengths=packed",
          "bwd bf16 batch=2 num_heads=2 seqlen=0:70 head_dim=64 lengths=used",
          "bwd bf16 batch=2 num_heads=2 seqlen=0:70 head_dim=64 lengths=packed"});
  return cases;
}

Cases memory() {
  const std::string sizes = " batch=2 num_heads=4:2 seqlen=150 head_dim=72 causal ";
  Cases cases;
  for (const auto& [name, layout] : {std::pair("Bshd", "bshd"), std::pair("Bhsd", "bhsd"),
                                     std::pair("PackedQkv", "packed_qkv")}) {
    const std::vector<std::string> problems = {
        "bwd bf16" + sizes + "layout=" + layout,
        "bwd fp16 batch=2 num_heads=4:2 seqlen=150 head_dim=128 deterministic layout=" +
            std::string(layout),
        "bwd bf16 batch=2 num_heads=4:2 seqlen=150 head_dim=64 gradients=fp32 dlse layout=" +
            std::string(layout)};
    cases.push_back({fmt::format("Layout{}", name), problems});
    cases.push_back({fmt::format("Layout{}WithGaps", name), problems, Inputs::kNormal, kGaps});
  }
  for (const int alignment : {2, 4, 8}) {
    ConformanceCase c{
        fmt::format("Alignment{}WithOddStrides", alignment), {}, Inputs::kNormal, kGaps};
    for (const char* layout : {"bshd", "bhsd"}) {
      c.problems.push_back(fmt::format("bwd {}{}layout={} alignment={}",
                                       alignment == 8 ? "bf16" : "fp16", sizes, layout, alignment));
    }
    if (alignment >= 4)
      c.problems.push_back(
          fmt::format("bwd bf16{}gradients=fp32 accumulate alignment={}", sizes, alignment));
    cases.push_back(c);
  }
  return cases;
}

}  // namespace

std::vector<ConformanceCase> backward_cases() {
  Cases cases = head_dims();
  for (auto* more : {&sizes, &words, &masks_and_scores, &lengths, &memory}) {
    for (ConformanceCase& c : (*more)()) cases.push_back(std::move(c));
  }
  cases.push_back({"LongSequences",
                   {"bwd bf16 batch=1 num_heads=4:1 seqlen=2048 head_dim=128 causal",
                    "bwd fp16 batch=1 num_heads=2 seqlen=130:8000 head_dim=64 deterministic"},
                   Inputs::kNormal,
                   {},
                   200});
  return cases;
}

std::vector<ConformanceCase> backward_cases_of_parts() {
  const std::string few = " batch=2 num_heads=4:2 seqlen=300:500 head_dim=64 ",
                    large = " batch=2 num_heads=4:2 seqlen=400 head_dim=128 ";
  Cases cases;
  for (const int block : {16, 32, 64, 128}) {
    ConformanceCase c{fmt::format("BlocksOf{}", block), {}};
    for (const char* options : {"density=0.5", "density=0.1 causal mask_heads=4 deterministic",
                                "density=0.9 mask_bits mask_heads=2",
                                "density=0.3 mask_bits causal mask_batch=2 mask_heads=4"}) {
      c.problems.push_back(fmt::format("bwd bf16{}blocks={} {}", few, block, options));
      c.problems.push_back(fmt::format("bwd fp16{}blocks={} {}", large, block, options));
    }
    cases.push_back(c);
  }
  ConformanceCase unequal{"BlocksOfUnequalSizes", {}};
  for (const char* of : {"128:16", "16:128", "32:64", "64:16", "128:32", "64:128"})
    unequal.problems.push_back(fmt::format("bwd fp16{}blocks={} mask_bits causal", few, of));
  cases.push_back(unequal);
  for (const auto& [name, blocks] : {std::pair("BlocksNonePresent", Blocks::kNone),
                                     std::pair("BlocksSinglePresent", Blocks::kSingle),
                                     std::pair("BlocksOneHotRow", Blocks::kOneHotRow),
                                     std::pair("BlocksCheckerboard", Blocks::kCheckerboard),
                                     std::pair("BlocksAllPresent", Blocks::kAll)}) {
    ConformanceCase c{name, {}};
    for (const char* of : {"16", "64:128", "128:64", "128"})
      c.problems.push_back(fmt::format("bwd bf16{}blocks={} mask_heads=2 mask_bits", few, of));
    c.blocks = blocks;
    cases.push_back(c);
  }
  add_to(cases, "BlocksWithLengths",
         {"bwd bf16 batch=5 num_heads=4:2 seqlen=200:333 head_dim=64 lengths=packed blocks=32",
          "bwd fp16 batch=5 num_heads=4:2 seqlen=200:333 head_dim=64 lengths=used causal "
          "blocks=64:16 mask_bits mask_batch=5 mask_heads=2"});
  add_to(cases, "BlocksOfNothing",
         {"bwd bf16 batch=2 num_heads=2 seqlen=70:0 head_dim=64 blocks=64",
          "bwd bf16 batch=2 num_heads=2 seqlen=0:70 head_dim=64 "
          "blocks=64"});
  const std::string of_sinks = " batch=2 num_heads=8:2 seqlen=200:333 head_dim=64 sinks ";
  add_to(cases, "Sinks",
         {"bwd bf16" + of_sinks, "bwd fp16" + of_sinks + "causal",
          "bwd bf16" + of_sinks + "window_left=17 window_right=33 dlse",
          "bwd fp16 batch=1 num_heads=6 seqlen=400 head_dim=128 sinks causal deterministic",
          "bwd bf16" + of_sinks + "accumulate gradients=fp32 layout=bhsd",
          "bwd fp32 batch=2 num_heads=4 seqlen=60 head_dim=32 sinks accumulate dlse"});
  add_to(cases, "SinksWithLengths",
         {"bwd bf16 batch=7 num_heads=8:2 seqlen=200:333 head_dim=64 sinks lengths=packed causal",
          "bwd fp16 batch=5 num_heads=6 seqlen=150 head_dim=128 sinks lengths=packed accumulate "
          "deterministic",
          "bwd bf16 batch=5 num_heads=8:2 seqlen=200:333 head_dim=64 sinks lengths=used dlse"});
  add_to(cases, "SinksOfRowsThatSeeNothing",
         {"bwd bf16 batch=1 num_heads=12:4 seqlen=300:70 head_dim=128 causal sinks dlse",
          "bwd bf16 batch=2 num_heads=6 seqlen=70:0 head_dim=64 sinks"});
  add_to(cases, "SinksAndStronglyNegativeScores", {"bwd bf16" + of_sinks + "causal"},
         Inputs::kStronglyNegative);
  add_to(cases, "SinksAndLargeInputs", {"bwd bf16" + of_sinks + "causal"}, Inputs::kLarge);
  return cases;
}

}  // namespace attnforge::test
