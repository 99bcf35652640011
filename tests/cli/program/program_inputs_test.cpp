// program_inputs_test.cpp - attnforge run --cpu: which inputs come from files, what is made up
// where none is named, and files that do not fit, which are refused before they are used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "cli/files/npy.h"
#include "tests/cli/program/program_fixture.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;
using Shape = std::vector<std::int64_t>;

class RunInputs : public Program {
 protected:
  template <class Number>
  std::string file(const char* name, const char* descr, const Shape& shape,
                   const std::vector<Number>& numbers) {
    write_npy(folder_.file(name), descr, shape, std::as_bytes(std::span(numbers)));
    return folder_.file(name);
  }
  std::string ints(const char* name, const std::vector<int>& numbers, Shape shape = {}) {
    if (shape.empty()) shape = {static_cast<std::int64_t>(numbers.size())};
    return file(name, "<i4", shape, numbers);
  }
  std::string floats(const char* name, const Shape& shape, const std::vector<float>& numbers) {
    return file(name, "<f4", shape, numbers);
  }
  /// q, k and v of ones but for v, whose row of each key is its number.
  Words tensors(std::int64_t batch, std::int64_t rows_q, std::int64_t rows_kv) {
    constexpr std::int64_t kDim = 8;
    std::vector<float> q(static_cast<std::size_t>(batch * rows_q * 2 * kDim), 1.0f);
    std::vector<float> k(static_cast<std::size_t>(batch * rows_kv * kDim), 1.0f), v(k.size());
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(static_cast<std::int64_t>(i) / kDim % rows_kv);
    return {"--q", floats("q.npy", {batch, rows_q, 2, kDim}, q),
            "--k", floats("k.npy", {batch, rows_kv, 1, kDim}, k),
            "--v", floats("v.npy", {batch, rows_kv, 1, kDim}, v)};
  }
  Outcome cpu(const std::vector<Words>& parts) {
    Words words = {"run", "--cpu"};
    for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
    return run(words);
  }
  std::vector<float> numbers_of(const char* name) {
    const NpyArray array = read_npy(folder_.file(name));
    std::vector<float> numbers(array.data.size() / sizeof(float));
    std::memcpy(numbers.data(), array.data.data(), array.data.size());
    return numbers;
  }
  void expect_refused(const std::vector<Words>& parts, const std::string& says) {
    const Outcome outcome = cpu(parts);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err << says;
    EXPECT_THAT(outcome.err, HasSubstr(says));
  }
};

TEST_F(RunInputs, AnAppendWithoutQueriesHasNoOutputToWrite) {
  const std::string o = folder_.file("o.npy"), append = "append bf16 seqlen=2:64 head_dim=64";
  expect_refused({{"--random", "1", "--o", o, append}}, "--o: an append writes its queries alone");
  EXPECT_FALSE(std::filesystem::exists(o));
  EXPECT_EQ(cpu({{"--random", "1", "--o", o, append + " queries rope=half"}}).exit_code, 0);
  EXPECT_GT(std::filesystem::file_size(o), 2u * 64 * 2);
}

TEST_F(RunInputs, FilesOfAMergeOrAnAppendAreRefusedAndNotIgnored) {
  expect_refused({tensors(1, 4, 4), {"merge", "parts=2"}}, "merge takes no files of q, k and v");
  expect_refused({tensors(1, 4, 4), {"append"}}, "append takes no files of q, k and v");
}

TEST_F(RunInputs, LengthsThatAProblemCannotHaveAreRefusedBeforeTheyAreUsed) {
  const Words pages = {"--random", "1",
                       "fwd bf16 batch=2 num_heads=2 seqlen=16:128 head_dim=64 lengths=used "
                       "page_size=64"};
  const auto of = [&](const std::vector<int>& lengths) {
    return Words{"--lengths-kv", ints("lengths.npy", lengths)};
  };
  EXPECT_EQ(cpu({pages, of({1, 128})}).exit_code, 0);
  for (const int length : {129, 100000, 2147483647, -1, -2147483647 - 1}) {
    expect_refused({pages, of({1, length})},
                   "sequence 1 has " + std::to_string(length) + " rows; it may have 0 to ");
  }
  expect_refused({pages, of({1})}, "lengths.kv has 1 numbers in place of 2");
  expect_refused({pages, of({1, 2, 3})}, "lengths.kv has 3 numbers in place of 2");
  expect_refused({pages, of({})}, "lengths.npy: it holds no lengths");
  expect_refused({pages, {"--lengths-q", ints("lengths.npy", {17, 1})}},
                 "lengths.q: sequence 0 has 17 rows");
  // The same without pages, and of packed sequences: their ends.
  const Words used = {"--random", "1", "fwd batch=2 seqlen=16 head_dim=64 lengths=used"};
  expect_refused({used, of({1, 17})}, "sequence 1 has 17 rows");
  const Words packed = {"--random", "1",
                        "fwd batch=2 seqlen=16 tokens=20 head_dim=64 lengths=packed"};
  const auto ends = [&](const std::vector<int>& q, const std::vector<int>& kv) {
    return Words{"--lengths-q", ints("q_ends.npy", q), "--lengths-kv", ints("kv_ends.npy", kv)};
  };
  EXPECT_EQ(cpu({packed, ends({0, 16, 20}, {0, 4, 20})}).exit_code, 0);
  expect_refused({packed, ends({0, 16, 20}, {0, 17, 20})}, "lengths.kv: sequence 0 has 17 rows");
  expect_refused({packed, ends({0, 16, 15}, {0, 4, 20})}, "lengths.q: sequence 1 has -1 rows");
  expect_refused({packed, ends({0, 16, 32}, {0, 4, 20})}, "32 is more than the 20 rows");
  expect_refused({packed, ends({1, 16, 20}, {0, 4, 20})}, "lengths.q[0]=1 must be 0");
  expect_refused({packed, ends({0, 16}, {0, 4, 20})}, "lengths.q has 2 numbers in place of 3");
  expect_refused({packed, {"--lengths-q", ints("q_ends.npy", {0, 16, 20})}},
                 "lengths=packed needs --lengths-q and --lengths-kv");
}

TEST_F(RunInputs, PageTablesWithoutColumnsOrPoolsWithoutPagesAreRefused) {
  const auto of = [&](const std::vector<int>& table, const Shape& shape) {
    return Words{"--page-table", ints("table.npy", table, shape)};
  };
  const Words random = {"--random", "1", "--lengths-kv", ints("lengths.npy", {128, 1}),
                        "fwd bf16 batch=2 seqlen=16:128 head_dim=64 lengths=used page_size=64"};
  EXPECT_EQ(cpu({random, of({0, 1, 0, -1}, {2, 2})}).exit_code, 0);
  expect_refused({random, of({}, {2, 0})}, "its shape [2, 0] is not a row for each of 2 sequences");
  expect_refused({random, of({}, {0, 2})}, "its shape [0, 2]");
  expect_refused({random, of({0, 1, 0, -1}, {1, 4})}, "its shape [1, 4]");
  expect_refused({random, of({0, -1, 0, -1}, {2, 2})}, "entry [0, 1] is -1");
  expect_refused({random, of({0, 1, 5, -1}, {2, 2})}, "must be one of the 5 pages");

  const auto files = [&](std::int64_t pages, std::int64_t page_size) {
    const std::vector<float> keys(static_cast<std::size_t>(pages * page_size * 8), 1.0f);
    return Words{"--q", floats("q.npy", {2, 1, 1, 8}, std::vector<float>(16, 1.0f)),
                 "--k", floats("k.npy", {pages, page_size, 1, 8}, keys),
                 "--v", floats("v.npy", {pages, page_size, 1, 8}, keys)};
  };
  EXPECT_EQ(cpu({files(3, 16), of({0, 2, 1, 0}, {2, 2})}).exit_code, 0);
  expect_refused({files(0, 16), of({0, 0, 0, 0}, {2, 2})}, "k.npy has no pages");
  expect_refused({files(3, 16), of({0, 3, 1, 0}, {2, 2})}, "entry [0, 1] is 3");
  expect_refused({files(3, 0), of({0, 1, 1, 0}, {2, 2})}, "page_size=0");
  // Extents of an empty file are anything; their product is not computed.
  expect_refused({files(0, std::int64_t{1} << 40), of({}, {0, std::int64_t{1} << 40})}, "");
}

TEST_F(RunInputs, AllRowsOfFilesCountUnlessAFileSaysOtherwise) {
  const Words used = {"--o", folder_.file("o.npy"), "lengths=used"};
  ASSERT_EQ(cpu({tensors(2, 1, 5), used}).exit_code, 0);
  for (const float number : numbers_of("o.npy")) EXPECT_EQ(number, 2.0f) << "the mean of 0 to 4";
  ASSERT_EQ(cpu({tensors(2, 1, 5), used, {"--lengths-kv", ints("n.npy", {3, 5})}}).exit_code, 0);
  EXPECT_EQ(numbers_of("o.npy").front(), 1.0f) << "the mean of 0 to 2";
  EXPECT_EQ(numbers_of("o.npy").back(), 2.0f);
}

TEST_F(RunInputs, PackedQueriesReadPagesAsEachSequenceByItselfDoes) {
  constexpr std::int64_t kDim = 8, kRowsOfPage = 8;
  const auto made = [](std::int64_t count, float step) {
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::sin(step * static_cast<float>(i));
    return numbers;
  };
  // Two queries of the first sequence and one of the second, of 11 and 5 keys.
  const std::vector<int> begins = {0, 2, 3}, used = {11, 5}, table = {3, 1, 0, -1};
  const std::vector<float> q = made(3 * kDim, 0.7f), k = made(4 * kRowsOfPage * kDim, 0.3f),
                           v = made(4 * kRowsOfPage * kDim, 1.1f);
  const Words output = {"--o", folder_.file("o.npy"), "causal"};
  const Words pool = {"--k", floats("k.npy", {4, kRowsOfPage, 1, kDim}, k), "--v",
                      floats("v.npy", {4, kRowsOfPage, 1, kDim}, v)};
  const Words queries = {"--q", floats("q.npy", {3, 1, kDim}, q), "--lengths-q",
                         ints("begins.npy", begins), "lengths=packed"};
  const Words pages = {"--page-table", ints("table.npy", table, {2, 2})};
  const Words lengths = {"--lengths-kv", ints("used.npy", used)};
  for (const Words& more :
       {Words{}, Words{"batch=2", "seqlen=2:16", "page_size=8"}, Words{"--check"}}) {
    const Outcome outcome = cpu({pool, queries, pages, lengths, output, more});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  const std::vector<float> together = numbers_of("o.npy");
  ASSERT_EQ(together.size(), q.size());
  const auto rows_of = [&](const std::vector<float>& of_pool, std::size_t sequence) {
    std::vector<float> rows;
    for (int key = 0; key < used[sequence]; ++key) {
      const auto page = table[sequence * 2 + static_cast<std::size_t>(key / kRowsOfPage)];
      const auto row = of_pool.begin() + (page * kRowsOfPage + key % kRowsOfPage) * kDim;
      rows.insert(rows.end(), row, row + kDim);
    }
    return rows;
  };
  for (std::size_t i = 0; i < 2; ++i) {
    const auto first = q.begin() + begins[i] * kDim, last = q.begin() + begins[i + 1] * kDim;
    ASSERT_EQ(cpu({{"--q", floats("q1.npy", {1, begins[i + 1] - begins[i], 1, kDim}, {first, last}),
                    "--k", floats("k1.npy", {1, used[i], 1, kDim}, rows_of(k, i)), "--v",
                    floats("v1.npy", {1, used[i], 1, kDim}, rows_of(v, i))},
                   output})
                  .exit_code,
              0);
    EXPECT_EQ(numbers_of("o.npy"), std::vector<float>(together.begin() + begins[i] * kDim,
                                                      together.begin() + begins[i + 1] * kDim))
        << i;
  }
  expect_refused({pool, queries, pages, output}, "sequence 1 has 16 keys in pages of 8");
  const Words all = {"--page-table", ints("all.npy", {3, 1, 0, 2}, {2, 2})};
  EXPECT_EQ(cpu({pool, queries, all, output}).exit_code, 0) << "without their lengths";
  expect_refused({pool, {"--q", folder_.file("q.npy"), "lengths=packed"}, pages, lengths},
                 "lengths=packed with pages needs --lengths-q");
  expect_refused({pool, queries, lengths, {"page_size=8"}}, "needs --page-table");
}

TEST_F(RunInputs, PackedFilesMayHaveNoRows) {
  const auto files = [&](std::int64_t q, std::int64_t kv) {
    const std::vector<float> none, keys(static_cast<std::size_t>(kv * 8), 1.0f);
    return Words{"--q",          floats("q.npy", {q, 1, 8}, std::vector<float>(q * 8, 1.0f)),
                 "--k",          floats("k.npy", {kv, 1, 8}, keys),
                 "--v",          floats("v.npy", {kv, 1, 8}, keys),
                 "--lengths-q",  ints("q_ends.npy", {0, 0, static_cast<int>(q)}),
                 "--lengths-kv", ints("kv_ends.npy", {0, 0, static_cast<int>(kv)}),
                 "--o",          folder_.file("o.npy")};
  };
  for (const char* sizes : {"lengths=packed", "batch=2 seqlen=2:8 lengths=packed"}) {
    for (const auto& [q, kv] : {std::pair(0, 0), {0, 4}, {2, 0}}) {
      const Outcome outcome = cpu({files(q, kv), {sizes}});
      ASSERT_EQ(outcome.exit_code, 0) << sizes << outcome.err;
      EXPECT_EQ(read_npy(folder_.file("o.npy")).header.shape, (Shape{q, 1, 8}));
      EXPECT_EQ(numbers_of("o.npy"), std::vector<float>(q * 8, 0.0f)) << "no key is seen";
    }
  }
  expect_refused({files(0, 4), {"seqlen=2:8 tokens_q=3 lengths=packed"}}, "tokens_q=3");
  expect_refused({files(0, 4), {"--mask-random", "1", "seqlen=2:8 blocks=16 lengths=packed"}},
                 "over 2x8, heads=1 batch=1 are not those of");
}

TEST_F(RunInputs, SinksComeFromAFileOrWithRandomAreRandom) {
  const Words words = {"--o", folder_.file("o.npy"), "--lse", folder_.file("lse.npy"), "sinks"};
  expect_refused({tensors(1, 1, 5), words}, "--sinks is missing");
  ASSERT_EQ(cpu({tensors(1, 1, 5),
                 words,
                 {"--check", "--sinks", floats("sinks.npy", {2}, {1e4f, -1e4f})}})
                .exit_code,
            0);
  // The first head's sink takes all there is, that of the second nothing.
  EXPECT_EQ(numbers_of("o.npy").front(), 0.0f);
  EXPECT_EQ(numbers_of("o.npy").back(), 2.0f);
  EXPECT_EQ(numbers_of("lse.npy").front(), 1e4f);
  expect_refused({tensors(1, 1, 5), words, {"--sinks", floats("sinks.npy", {3}, {1, 2, 3})}},
                 "sinks.npy: its values are <f4 [3]; they must be float32 [num_heads_q]");
  expect_refused({tensors(1, 1, 5), words, {"--sinks", ints("sinks.npy", {1, 2})}}, "<i4 [2]");
  expect_refused({tensors(1, 1, 5), {"--sinks", folder_.file("sinks.npy")}},
                 "--sinks needs a problem with the word sinks");
  const Words random = {"--random", "1", "--lse", folder_.file("lse.npy"),
                        "fwd num_heads=2 seqlen=1:5 head_dim=8"};
  ASSERT_EQ(cpu({random}).exit_code, 0);
  const std::vector<float> without = numbers_of("lse.npy");
  ASSERT_EQ(cpu({random, {"sinks"}}).exit_code, 0);
  const std::vector<float> with = numbers_of("lse.npy");
  // lse = log(exp(without) + exp(sink)): zeros would give one and the same sink to both heads.
  const double first = std::exp(with[0]) - std::exp(without[0]);
  const double second = std::exp(with[1]) - std::exp(without[1]);
  EXPECT_GT(std::abs(first - second), 0.01);
}

TEST_F(RunInputs, GradientsOfSinksAndOfLseAreReadAndWritten) {
  const Words words = {"--dout",   floats("dout.npy", {1, 1, 2, 8}, std::vector<float>(16)),
                       "--sinks",  floats("sinks.npy", {2}, {0, 0}),
                       "--dsinks", folder_.file("dsinks.npy"),
                       "bwd",      "sinks"};
  ASSERT_EQ(cpu({tensors(1, 1, 5), words}).exit_code, 0);
  EXPECT_EQ(numbers_of("dsinks.npy"), (std::vector<float>{0, 0})) << "of nothing";
  expect_refused({tensors(1, 1, 5), words, {"dlse"}}, "--dlse is missing");
  ASSERT_EQ(
      cpu({tensors(1, 1, 5), words, {"dlse", "--dlse", floats("dlse.npy", {1, 2, 1}, {1, 0})}})
          .exit_code,
      0);
  // d lse / d sink is the share of the sink: of 6 equal scores, but for the scale of the others.
  const double share = 1 / (1 + 5 * std::exp(std::sqrt(8.0)));
  EXPECT_NEAR(numbers_of("dsinks.npy")[0], share, 1e-6);
  EXPECT_EQ(numbers_of("dsinks.npy")[1], 0);
  expect_refused({tensors(1, 1, 5), words, {"dlse", "--dlse", floats("dlse.npy", {2}, {1, 0})}},
                 "they must be float32 [1, 2, 1], the shape of lse");
  expect_refused({tensors(1, 1, 5), words, {"--dlse", folder_.file("dlse.npy")}},
                 "--dlse needs a problem with the word dlse");
  expect_refused({tensors(1, 2, 5),
                  {"--dout", floats("dout.npy", {1, 1, 4, 8}, std::vector<float>(32)), "bwd"}},
                 "dout.npy: its shape is [1, 1, 4, 8], and that of o [1, 2, 2, 8]");
}

TEST_F(RunInputs, ArraysOfTextsAreGivenOrAskedFor) {
  const Words text = {"score=s + a[head]", "args=float* a[num_heads_q]"};
  expect_refused({tensors(1, 1, 5), text}, "--arg a=FILE.npy is missing");
  expect_refused({tensors(1, 1, 5), text, {"--arg", "a=" + floats("a.npy", {1}, {1})}},
                 "a: its file has 1 elements, and args=\"float* a[num_heads_q]\" says 2");
}

/// k and v of each format beside their values in fp16: 3 keys of 32 columns, of one query.
class RunOfFewBits : public RunInputs {
 protected:
  static constexpr int kKeys = 3, kDim = 32;
  using Values = std::vector<std::uint16_t>;  // fp16

  static std::uint16_t fp16(float x) {
    std::uint16_t bits;
    values_from_float(DType::kFp16, &x, 1, &bits);
    return bits;
  }
  static float value_of(int key, int column, float scale, float zero) {
    return float((key * 5 + column * 3) % 16 - 8) * scale + zero;
  }
  std::vector<float> run_of(const Words& k_and_v) {
    Values q(kDim);
    for (int d = 0; d < kDim; ++d) q[std::size_t(d)] = fp16(0.25f * float(d % 5 - 2));
    const Words of_q = {"--q", file("q.npy", "<f2", {1, 1, 1, kDim}, q), "--o",
                        folder_.file("o.npy"), "o=fp32"};
    const Outcome outcome = cpu({of_q, k_and_v});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return numbers_of("o.npy");
  }
  /// Of values of fp16, with these scales and zero points of keys.
  std::vector<float> run_of_values(const float (&scales)[kKeys], const float (&zeros)[kKeys]) {
    Values values;
    for (int key = 0; key < kKeys; ++key)
      for (int d = 0; d < kDim; ++d)
        values.push_back(fp16(value_of(key, d, scales[key], zeros[key])));
    const std::string name = file("values.npy", "<f2", {1, kKeys, 1, kDim}, values);
    return run_of({"--k", name, "--v", name});
  }
  void expect_same(const std::vector<float>& got, const std::vector<float>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    ASSERT_EQ(got.size(), std::size_t{kDim});
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]) << i;
    EXPECT_NE(got[0], got[1]);
  }
};

TEST_F(RunOfFewBits, BlocksComeFromFilesAsGgmlHasThem) {
  const float scales[kKeys] = {0.5f, -0.25f, 2.0f};
  std::vector<std::uint8_t> of8, of4;
  for (int key = 0; key < kKeys; ++key) {
    const std::uint16_t scale = fp16(scales[key]);
    const auto number = [&](int d) { return (key * 5 + d * 3) % 16; };
    for (auto* blocks : {&of8, &of4})
      blocks->push_back(std::uint8_t(scale)), blocks->push_back(std::uint8_t(scale >> 8));
    for (int d = 0; d < kDim; ++d) of8.push_back(std::uint8_t(number(d) - 8));
    for (int d = 0; d < 16; ++d) of4.push_back(std::uint8_t(number(d) | number(d + 16) << 4));
  }
  const std::string k = file("k8.npy", "|u1", {1, kKeys, 1, 34}, of8),
                    v = file("v4.npy", "|u1", {1, kKeys, 1, 18}, of4);
  const std::vector<float> wanted = run_of_values(scales, {0, 0, 0});
  expect_same(run_of({"--k", k, "--v", v, "k=q8_0", "v=q4_0"}), wanted);
  expect_refused({{"--q", folder_.file("q.npy"), "--k", k, "--v", k, "k=q8_0", "v=q4_0"}},
                 "head_dim_v=60 must be a multiple of 8");
}

TEST_F(RunOfFewBits, ZeroPointsLieAfterTheirScales) {
  const float scales[kKeys] = {0.5f, 0.25f, 1.0f}, zeros[kKeys] = {-1.0f, 3.0f, 0.5f};
  std::vector<std::uint8_t> bytes;
  std::vector<float> pairs;
  for (int key = 0; key < kKeys; ++key) {
    const auto number = [&](int d) { return ((key * 5 + d * 3) % 16 - 8) & 15; };
    for (int d = 0; d < kDim; d += 2) bytes.push_back(std::uint8_t(number(d) | number(d + 1) << 4));
    pairs.push_back(scales[key]), pairs.push_back(zeros[key]);
  }
  const std::string k = file("k4.npy", "|u1", {1, kKeys, 1, kDim / 2}, bytes),
                    of_k = floats("pairs.npy", {1, kKeys, 1, 1, 2}, pairs);
  const std::vector<float> wanted = run_of_values(scales, zeros);
  expect_same(run_of({"--k", k, "--v", k, "--k-scale", of_k, "--v-scale", of_k, "kv_scale=token",
                      "kv_zero"}),
              wanted);
  expect_refused({{"--q", folder_.file("q.npy"), "--k", k, "--v", k, "--k-scale", of_k, "--v-scale",
                   of_k, "kv_scale=token"}},
                 "has 6 numbers in place of 3");
}

TEST_F(RunOfFewBits, RandomOnesAgreeWithTheReference) {
  for (const char* words :
       {"k=q8_0 v=q4_0 head_dim=64:96 lengths=used page_size=16", "k=q4_0 head_dim=32 causal",
        "k=int4 v=int4 kv_scale=group32 kv_zero head_dim=72:40",
        "v=int4 kv_scale=token kv_zero head_dim=64 lengths=packed"}) {
    const Outcome outcome = cpu(
        {{"--random", "3", "--check", "fwd bf16 batch=2 num_heads=4:2", "seqlen=5:50", words}});
    EXPECT_EQ(outcome.exit_code, 0) << words << outcome.err;
  }
  EXPECT_EQ(cpu({{"--random", "3", "--check", "append bf16 k=int4 v=int4 kv_scale=token kv_zero",
                  "batch=2 num_heads=2 seqlen=3:40 head_dim=64"}})
                .exit_code,
            0);
}

}  // namespace
}  // namespace attnforge::cli
