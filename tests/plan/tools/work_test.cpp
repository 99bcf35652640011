// work_test.cpp - what a run computes is counted pair by pair where it can be, and else not said.
#include "attnforge/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "attnforge/block_mask.h"
#include "reference/mask_rows.h"

namespace attnforge {
namespace {

using testing::HasSubstr;
using Sees = std::function<bool(std::int64_t batch, std::int64_t head, std::int64_t q,
                                std::int64_t k)>;

double counted(const Problem& p, const Sees& sees) {
  double pairs = 0;
  for (std::int64_t batch = 0; batch < p.batch; ++batch)
    for (std::int64_t head = 0; head < p.num_heads_q; ++head)
      for (std::int64_t q = 0; q < p.seqlen_q; ++q)
        for (std::int64_t k = 0; k < p.seqlen_kv; ++k) pairs += sees(batch, head, q, k) ? 1 : 0;
  return flops_of_pairs(p, pairs);
}

TEST(WorkOf, TextsIsThatOfThePairsThatTheyLetThrough) {
  struct Case {
    std::string words;
    Sees sees;
  };
  const Case cases[] = {
      {"mask=\"k <= q && q - k < 40\"",
       [](auto, auto, auto q, auto k) { return k <= q && q - k < 40; }},
      {"mask=\"k < q - 30 && k > q - 33\"",
       [](auto, auto, auto q, auto k) { return k < q - 30 && k > q - 33; }},
      {"mask=\"k < q - 200 && k > q + 3\"", [](auto, auto, auto, auto) { return false; }},
      {"mask=\"k <= q + 20\" window_left=9",
       [](auto, auto, auto q, auto k) { return k <= q + 20 && k >= q + 60 - 9; }},
      {"mask=\"k <= q && (q - k < 40 || k < 4)\"",
       [](auto, auto, auto q, auto k) { return k <= q && (q - k < 40 || k < 4); }},
      {"mask=\"(k - q) % 3 != 0\" causal",
       [](auto, auto, auto q, auto k) { return k <= q + 60 && (k - q) % 3 != 0; }},
      {"mask=\"k <= q + head * 7 - batch\"",
       [](auto batch, auto head, auto q, auto k) { return k <= q + head * 7 - batch; }},
      {"mask=\"head > 1 || k < 10\"",
       [](auto, auto head, auto, auto k) { return head > 1 || k < 10; }},
      {"mask=\"k % 2 == batch\"", [](auto batch, auto, auto, auto k) { return k % 2 == batch; }},
      {"mask=\"k <= q && tanhf((q - k) * 0.01f) < 0.3f\"",
       [](auto, auto, auto q, auto k) { return k <= q && std::tanh(double(q - k) * 0.01) < 0.3; }},
  };
  for (const Case& c : cases) {
    for (const std::string op : {"fwd", "bwd"}) {
      const Problem p = parse_problem(op + " batch=2 num_heads=4:2 seqlen=100:160 " + c.words);
      const Work work = work_of(p);
      EXPECT_EQ(work.unknown, "") << c.words;
      EXPECT_EQ(work.flops, counted(p, c.sees)) << op << " " << c.words;
    }
  }
}

TEST(WorkOf, ATextsWindowsIsThatOfTheWordsHoweverLong) {
  const Problem
      text = parse_problem(
          "fwd bf16 num_heads=16 seqlen=4096 head_dim=128 mask=\"k <= q && q - k < 1024\""),
      words = parse_problem(
          "fwd bf16 num_heads=16 seqlen=4096 head_dim=128 causal window_left=1023");
  EXPECT_EQ(work_of(text).flops, work_of(words).flops);
  EXPECT_EQ(flops(text), flops(words)) << "estimates count them too";
  const Problem longest = parse_problem(
      "fwd bf16 num_heads=16 seqlen=10000000 head_dim=128 mask=\"k <= q\"");
  EXPECT_EQ(work_of(longest).flops, 16 * 4.0 * 128 * (1e7 * (1e7 + 1) / 2));
}

TEST(WorkOf, ArraysAreReadWhereTheyAreGiven) {
  const Problem p = parse_problem(
      "fwd num_heads=2 seqlen=60 args=\"int n = 3, int* document[60]\" "
      "mask=\"k <= q && document[q] == document[k] && q % n != 0\"");
  std::array<int, 60> document{};
  for (std::size_t i = 0; i < document.size(); ++i) document[i] = static_cast<int>(i * i / 500);
  const std::span<const std::byte> arrays[] = {{}, std::as_bytes(std::span(document))};
  const double wanted = counted(p, [&](auto, auto, auto q, auto k) {
    return k <= q && document[std::size_t(q)] == document[std::size_t(k)] && q % 3 != 0;
  });
  EXPECT_EQ(work_of(p, {}, arrays).flops, wanted);
  HostTensors host = random_host_tensors(p, 1);
  ASSERT_EQ(host.code_words.size(), 2u);
  std::memcpy(host.code_arrays.data() + host.code_words[1], document.data(), sizeof(document));
  EXPECT_EQ(work_of(p, host).flops, wanted);
  EXPECT_THAT(work_of(p).unknown, HasSubstr("document, whose elements are not given"));
}

TEST(WorkOf, BlocksAskATextInPartialOnes) {
  const BlockMaskShape shape{
      .block_q = 16, .block_kv = 32, .seqlen_q = 100, .seqlen_kv = 160, .heads = 2, .batch = 2};
  for (const std::string more : {"", " causal", " window_left=50 window_right=3"}) {
    for (const std::string text : {"", " mask=\"(k + q) % 3 == 0\""}) {
      const BlockMask mask = random_block_mask(
          shape, {.density = 0.4, .seed = 7, .diagonal = true, .partial = 0.5});
      const Problem p = with_block_mask(
          parse_problem("fwd batch=2 num_heads=4:2 seqlen=100:160 blocks=16:32" + more + text),
          mask);
      HostTensors host;
      set_block_mask(p, host, mask);
      const MaskRows rows(p, block_mask_ref(mask));
      const Window window = effective_window(p);
      const double wanted = counted(p, [&](auto batch, auto head, auto q, auto k) {
        const std::int64_t distance = k - q - 60;
        if (window.right >= 0 && distance > window.right) return false;
        if (window.left >= 0 && distance < -window.left) return false;
        const MaskRow row = rows.row(batch, head, q);
        return row.contains(k) && (text.empty() || !row.asks_rule(k) || (k + q) % 3 == 0);
      });
      EXPECT_EQ(work_of(p, host).flops, wanted) << more << text;
    }
  }
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(WorkOf, IsNotSaidWhereNobodyKnowsIt) {
  const struct {
    std::string words, why;
  } cases[] = {
      {"seqlen=64 mask=\"[&] { return k <= q; }()\"", "its mask text is not counted: it has \"[\""},
      {"seqlen=64 mask=\"sinpif(q - k) > 0.5f\"", "calls sinpif"},
      {"seqlen=64 args=\"int* document\" mask=\"document[q] == document[k]\"",
       "document, whose elements are not given"},
      {"batch=2 seqlen=64 lengths=used", "only the GPU knows how long its sequences are"},
      {"batch=2 seqlen=64 lengths=packed mask=\"k % 2 == 0\"", "only the GPU knows"},
      {"seqlen=64 blocks=16", "which blocks of its mask are present, a run says"},
      {"seqlen=131072 mask=\"k <= q && (q - k < 1024 || k < 4)\"", "more than 16777216 pairs"},
      {"num_heads=64 seqlen=1024 mask=\"k % (head + 2) == 0\"", "more than 16777216 pairs"},
      // As many pairs as are counted of a short text would take minutes of these.
      {"seqlen=1024 mask=\"" + repeated("k % 3 + ", 200) + "k < 5\"",
       "of 803 operations would have to be asked of more than 334290 pairs"},
      {"seqlen=1024 mask=\"" + repeated("powf(k, 2) + ", 20) + "k < 5\"",
       "of 383 operations would have to be asked of more than"},
  };
  for (const auto& [words, why] : cases) {
    const Work work = work_of(parse_problem("fwd " + words));
    EXPECT_THAT(work.unknown, HasSubstr(why)) << words;
    EXPECT_EQ(work.flops, 0) << words;
    EXPECT_EQ(work.tflops_per_s(10), 0) << words;
  }
}

TEST(TimedWork, IsThatOfTheTablesThatARunMakesUp) {
  for (const std::string words :
       {"batch=3 seqlen=50 lengths=packed", "batch=3 seqlen=50:70 lengths=used causal",
        "seqlen=200 blocks=16 density=0.3", "seqlen=96 mask=\"k <= q && q % 5 != 0\"",
        "seqlen=96 args=\"int* document\" mask=\"document[q] == document[k]\"",
        "batch=2 seqlen=64 lengths=used mask=\"k <= seqlen_kv - seqlen_q + q\"",
        "batch=2 seqlen=64 lengths=used page_size=16"}) {
    const Problem p = parse_problem("fwd num_heads=2 " + words);
    const Work work = timed_work(p, 5), run = work_of(p, random_host_tensors(p, 5));
    EXPECT_EQ(work.unknown, "") << words;
    EXPECT_GT(work.flops, 0) << words;
    EXPECT_EQ(work.flops, run.flops) << words;
    EXPECT_LE(work.flops, flops_of_pairs(p, double(p.batch) * 2 * p.seqlen_q * p.seqlen_kv))
        << words;
  }
}

TEST(TimedWork, OfDocumentsIsLessThanAllPairs) {
  const Problem p = parse_problem(
      "fwd seqlen=512 args=\"int* document\" mask=\"document[q] == document[k]\"");
  EXPECT_LT(timed_work(p).flops, flops_of_pairs(p, 512.0 * 512) / 2);
}

}  // namespace
}  // namespace attnforge
