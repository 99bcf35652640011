#include "cli/parts/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>

#include "attnforge/error.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using Shape = std::vector<std::int64_t>;

InputHeaders headers(const Shape& q, const Shape& k, const Shape& v, const char* descr = "<f2") {
  return {
      {"q.npy", {descr, q, 128}}, {"k.npy", {descr, k, 128}}, {"v.npy", {descr, v, 128}}, false};
}

std::string error_of(const InputHeaders& in, const std::vector<std::string>& words) {
  try {
    problem_of_files(in, words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidProblem);
    return error.what();
  }
  return "no error";
}

const Shape kQ = {2, 100, 8, 64}, kK = {2, 300, 2, 64}, kV = {2, 300, 2, 96};

TEST(ProblemOfFiles, ShapesAndTypesFillInTheProblem) {
  EXPECT_EQ(problem_of_files(headers(kQ, kK, kV), {}),
            parse_problem("fwd fp16 batch=2 num_heads=8:2 seqlen=100:300 head_dim=64:96"));
}

TEST(ProblemOfFiles, AByteOfUint8HasTwoElements) {
  InputHeaders in = headers(kQ, {2, 300, 2, 32}, kV, "|u1");
  in.q.header.descr = "<f2";
  in.v.header.descr = "|i1";
  EXPECT_EQ(problem_of_files(in, {"kv_scale=token"}),
            parse_problem("fwd fp16 k=int4 v=int8 kv_scale=token batch=2 num_heads=8:2 "
                          "seqlen=100:300 head_dim=64:96"));
}

TEST(ProblemOfFiles, WordsAddWhatFilesDoNotSay) {
  const Problem expected = parse_problem(
      "fwd fp16 batch=2 num_heads=8:2 seqlen=100:300 head_dim=64:96 causal window_left=50 "
      "softcap=20 lse");
  EXPECT_EQ(problem_of_files(headers(kQ, kK, kV), {"causal window_left=50", "softcap=20", "lse"}),
            expected);
  EXPECT_EQ(problem_of_files(headers(kQ, kK, kV),
                             {"fwd", "causal", "window_left=50", "softcap=20", "lse"}),
            expected);
}

TEST(ProblemOfFiles, WordsMayRepeatWhatFilesSay) {
  const std::string full = "fwd fp16 batch=2 num_heads=8:2 seqlen=100:300 head_dim=64:96";
  EXPECT_EQ(problem_of_files(headers(kQ, kK, kV), {full}), parse_problem(full));
  EXPECT_EQ(
      problem_of_files(headers(kQ, kK, kV), {"num_heads_q=8", "seqlen_kv=300", "head_dim_v=96"}),
      parse_problem(full));
}

/// Two sequences of up to three pages of 16 keys.
SequenceFiles page_file(std::vector<int> table = {4, 0, 2, 3, -1, -1}) {
  const auto columns = static_cast<std::int64_t>(table.size()) / 2;
  return {{}, {}, "table.npy", {2, columns}, std::move(table)};
}

TEST(ProblemOfFiles, WithAPageTableKAndVArePools) {
  const Problem expected = parse_problem(
      "fwd fp16 batch=2 num_heads=8:2 seqlen=1:48 head_dim=64:96 lengths=used page_size=16");
  const Shape q = {2, 1, 8, 64};
  EXPECT_EQ(problem_of_files(headers(q, {5, 16, 2, 64}, {5, 16, 2, 96}), {}, page_file()),
            expected);
  EXPECT_EQ(problem_of_files(headers({2, 8, 1, 64}, {5, 2, 16, 64}, {5, 2, 16, 96}),
                             {"layout=bhsd", "seqlen_kv=40"}, page_file()),
            parse_problem("fwd fp16 batch=2 num_heads=8:2 seqlen=1:40 head_dim=64:96 lengths=used "
                          "page_size=16 layout=bhsd"));
  const auto refused = [&](const Shape& k, const Shape& v, std::vector<std::string> words,
                           const SequenceFiles& pages) {
    try {
      problem_of_files(headers(q, k, v), words, pages);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused({5, 16, 2, 64}, {6, 16, 2, 64}, {}, page_file()),
              HasSubstr("k.npy has 5 pages and v.npy has 6"));
  EXPECT_THAT(refused({5, 16, 2, 64}, {5, 16, 2, 64}, {"page_size=32"}, page_file()),
              HasSubstr("page_size=16, but the problem has page_size=32"));
  EXPECT_THAT(refused({2, 16, 2, 64}, {2, 16, 2, 64}, {"page_size=16 lengths=used"}, {}),
              HasSubstr("needs --page-table"));
  EXPECT_THAT(refused({5, 12, 2, 64}, {5, 12, 2, 64}, {}, page_file()), HasSubstr("page_size=12"));
}

TEST(CheckPageTable, WantsAPageForEveryKey) {
  const Problem problem = parse_problem(
      "fwd fp16 batch=2 num_heads=8:2 seqlen=1:48 head_dim=64 lengths=used page_size=16");
  const auto refused = [&](const SequenceFiles& file, const std::vector<int>& lengths) {
    try {
      check_table(file, problem, lengths, 5);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidProblem);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(page_file(), {48, 16}), "");
  EXPECT_THAT(refused(page_file(), {48, 17}), HasSubstr("table.npy: entry [1, 1] is -1"));
  EXPECT_THAT(refused(page_file({4, 0, 5, 3, -1, -1}), {33, 16}),
              HasSubstr("entry [0, 2] is 5, but sequence 0 has 33 keys"));
  EXPECT_EQ(refused(page_file({4, 0, 5, 3, -1, -1}), {32, 0}), "");
  EXPECT_THAT(refused(page_file({4, 0, 3, -1}), {0, 0}), HasSubstr("shape"));
}

TEST(ProblemOfFiles, HeadsFirst) {
  const InputHeaders in = headers({2, 8, 100, 64}, {2, 2, 300, 64}, {2, 2, 300, 96});
  EXPECT_EQ(
      problem_of_files(in, {"layout=bhsd"}),
      parse_problem("fwd fp16 batch=2 num_heads=8:2 seqlen=100:300 head_dim=64:96 layout=bhsd"));
}

TEST(ProblemOfFiles, ContradictionsNameFileShapeAndWord) {
  EXPECT_THAT(
      error_of(headers(kQ, kK, kV), {"head_dim=128"}),
      HasSubstr(
          "q.npy: its shape [2, 100, 8, 64] says head_dim=64, but the problem has head_dim=128"));
  EXPECT_THAT(error_of(headers(kQ, kK, kV), {"num_heads=8"}),
              HasSubstr("k.npy: its shape [2, 300, 2, 64] says num_heads_kv=2, but the problem has "
                        "num_heads_kv=8"));
  EXPECT_THAT(error_of(headers(kQ, kK, kV), {"batch=3"}), HasSubstr("batch=3"));
}

TEST(ProblemOfFiles, FilesMustFitEachOther) {
  EXPECT_THAT(error_of(headers(kQ, {2, 300, 2, 72}, kV), {}),
              HasSubstr("k.npy: its shape [2, 300, 2, 72] says head_dim=72"));
  EXPECT_THAT(error_of(headers(kQ, kK, {2, 301, 2, 96}), {}),
              HasSubstr("v.npy: its shape [2, 301, 2, 96] says seqlen_kv=301"));
  EXPECT_THAT(error_of(headers(kQ, {1, 300, 2, 64}, kV), {}), HasSubstr("k.npy"));
  EXPECT_THAT(error_of(headers({2, 100, 64}, kK, kV), {}),
              HasSubstr("has 3 dimensions; 4 are needed"));
}

TEST(ProblemOfFiles, AnUnknownWordIsRefused) {
  EXPECT_THAT(error_of(headers(kQ, kK, kV), {"causual"}), HasSubstr("causual"));
  EXPECT_THAT(error_of(headers(kQ, kK, kV), {"layout=packed_qkv"}), HasSubstr("packed_qkv"));
  EXPECT_THAT(error_of(headers(kQ, kK, kV), {"layout=sideways"}), HasSubstr("sideways"));
}

TEST(ProblemOfFiles, Dtypes) {
  const auto dtype = [](const char* descr, const std::vector<std::string>& words) {
    return problem_of_files(headers(kQ, kK, kV, descr), words).dtype_q;
  };
  EXPECT_EQ(dtype("<f4", {}), DType::kFp32);
  EXPECT_EQ(dtype("<V2", {}), DType::kBf16);
  EXPECT_EQ(dtype("<f4", {"bf16"}), DType::kBf16) << "fp32 values are rounded";
  EXPECT_EQ(dtype("<f2", {"fp32"}), DType::kFp32) << "fp32 holds them exactly";
  EXPECT_THAT(error_of(headers(kQ, kK, kV, "<f2"), {"bf16"}),
              HasSubstr("q.npy: its values are fp16, but the problem wants bf16"));

  const Problem mixed = problem_of_files(headers(kQ, kK, kV, "<f2"), {"o=fp32"});
  EXPECT_EQ(mixed.dtype_q, DType::kFp16);
  EXPECT_EQ(mixed.dtype_o, DType::kFp32);
}

TEST(Converted, RoundsToNearestEven) {
  const float values[] = {1.0f, -2.5f, 1.00390625f /* a tie in bf16 */, 65520.0f /* beyond fp16 */};
  NpyArray array{{"<f4", {4}, 0}, std::vector<std::byte>(sizeof values)};
  std::memcpy(array.data.data(), values, sizeof values);
  const auto bits = [&](DType dtype) {
    const std::vector<std::byte> data = converted(NpyArray(array), DType::kFp32, dtype);
    std::vector<std::uint16_t> result(4);
    EXPECT_EQ(data.size(), 8u);
    std::memcpy(result.data(), data.data(), 8);
    return result;
  };
  EXPECT_EQ(bits(DType::kBf16), (std::vector<std::uint16_t>{0x3f80, 0xc020, 0x3f80, 0x4780}));
  EXPECT_EQ(bits(DType::kFp16), (std::vector<std::uint16_t>{0x3c00, 0xc100, 0x3c04, 0x7c00}));
}

TEST(ReadRopeTable, TakesRowsOfHalfTheRotatedElements) {
  const TemporaryFolder folder;
  const std::string path = folder.file("cos.npy");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const Shape shape = {2, 4};
  write_npy(path, "<f4", shape, std::as_bytes(std::span(values)));
  EXPECT_EQ(read_rope_table(path, parse_problem("fwd rope=half rope_dim=8")), values);
  const auto refused = [&](const char* problem) -> std::string {
    try {
      read_rope_table(path, parse_problem(problem));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused("fwd rope=half rope_dim=16"),
              testing::AllOf(HasSubstr("cos.npy"), HasSubstr("[2, 4]"), HasSubstr("[rows, 8]")));
  write_npy(path, "<f2", shape, std::as_bytes(std::span(values).first(4)));
  EXPECT_THAT(refused("fwd rope=half rope_dim=8"), HasSubstr("float32"));
}

TEST(OutputShape, FollowsTheLayout) {
  Problem p = parse_problem("fwd batch=2 num_heads=8:2 seqlen=100:300 head_dim=64:96");
  EXPECT_EQ(output_shape(p), (Shape{2, 100, 8, 96}));
  p.layout = Layout::kBhsd;
  EXPECT_EQ(output_shape(p), (Shape{2, 8, 100, 96}));
}

}  // namespace
}  // namespace attnforge::cli
