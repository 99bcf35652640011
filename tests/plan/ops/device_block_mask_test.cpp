// device_block_mask_test.cpp - block masks on a fake GPU, whose memory is the host's and which
// computes nothing: copies, what is compiled when, and what is refused.
#include "attnforge/device_block_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "attnforge/error.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr BlockMaskShape kShape{
    .block_q = 64, .block_kv = 16, .seqlen_q = 300, .seqlen_kv = 200, .heads = 2, .batch = 3};

Problem problem_of(const std::string& mask, const std::string& words = "blocks=64") {
  Problem problem = parse_problem(
      "fwd bf16 batch=3 num_heads=8:2 seqlen=300:200 head_dim=64 causal " + words);
  problem.mask = mask;
  return problem;
}

class DeviceBlockMaskTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda().reset();
    folder_ = fs::path(testing::TempDir()) /
              ("attnforge_device_block_mask_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Device open() { return Device({.cache_path = (folder_ / "cache.db").string()}); }

 private:
  fs::path folder_;
};

TEST_F(DeviceBlockMaskTest, CopiesToAGpuAndBackAreTheMask) {
  Device device = open();
  for (const double partial : {0.0, 0.5}) {
    const BlockMask mask = random_block_mask(
        kShape, {.density = 0.4, .seed = 3, .diagonal = false, .partial = partial});
    const DeviceBlockMask copy = upload_block_mask(device, mask);
    EXPECT_EQ(download_block_mask(copy), mask);
    EXPECT_EQ(copy.has_bits(), partial > 0);
    EXPECT_EQ(count_blocks(copy).full, count_blocks(mask).full);
    EXPECT_EQ(count_blocks(copy).partial, count_blocks(mask).partial);
    const Problem plain = parse_problem(
        "fwd bf16 batch=3 num_heads=8:2 seqlen=300:200 head_dim=64");
    EXPECT_EQ(with_block_mask(plain, copy), with_block_mask(plain, mask));
    const BlockMaskRef ref = block_mask_ref(copy);
    EXPECT_EQ(ref.bits != nullptr, partial > 0);
    EXPECT_EQ(ref.row_begin, copy.row_begin.data());
  }
}

TEST_F(DeviceBlockMaskTest, ATextIsCompiledOnceForAGpu) {
  Device device = open();
  const Problem problem = problem_of("k <= q");
  const DeviceBlockMask mask = block_mask_from_text(device, problem);
  const int loads = fake_cuda().loads();
  EXPECT_EQ(mask.heads, 1);
  EXPECT_EQ(mask.batch, 1);
  Problem other = problem;  // what the kernels need not know
  other.score = "s * 2";
  other.head_dim = other.head_dim_v = 128;
  other.batch = 2;
  block_mask_from_text(device, other);
  EXPECT_EQ(fake_cuda().loads(), loads);
  other.mask_block_q = 32;
  block_mask_from_text(device, other);
  EXPECT_GT(fake_cuda().loads(), loads);
}

TEST_F(DeviceBlockMaskTest, ItsCodeIsFoundInTheDatabaseWhereCompilesAreForbidden) {
  const Problem problem = problem_of("k <= q");
  {
    Device device = open();
    const Error error = error_of(
        [&] { block_mask_from_text(device, problem, nullptr, {.allow_compile = false}); });
    EXPECT_EQ(error.code(), ErrorCode::kNotReady);
    EXPECT_THAT(error.what(), HasSubstr("k <= q"));
    EXPECT_EQ(fake_cuda().loads(), 0);
    block_mask_from_text(device, problem);
  }
  Device device = open();
  EXPECT_NO_THROW(block_mask_from_text(device, problem, nullptr, {.allow_compile = false}));
}

TEST_F(DeviceBlockMaskTest, HeadsAndSequencesHaveMasksOfTheirOwnWhereTheTextNamesThem) {
  Device device = open();
  const DeviceBlockMask of_heads = block_mask_from_text(device, problem_of("k <= q + head"));
  EXPECT_EQ(of_heads.heads, 8);
  EXPECT_EQ(of_heads.batch, 1);
  const DeviceBlockMask of_batch = block_mask_from_text(device, problem_of("k <= q + batch"));
  EXPECT_EQ(of_batch.heads, 1);
  EXPECT_EQ(of_batch.batch, 3);
  const Problem run = with_block_mask(problem_of("k <= q + head"), of_heads);
  EXPECT_EQ(run.mask_heads, 8);
  EXPECT_EQ(run.mask, "k <= q + head") << "what partial blocks are left to";
}

TEST_F(DeviceBlockMaskTest, WhatCannotBeMadeIsRefused) {
  Device device = open();
  const auto message = [&](const Problem& problem, const std::uint64_t* words = nullptr) {
    return std::string(error_of([&] { block_mask_from_text(device, problem, words); }).what());
  };
  EXPECT_THAT(message(problem_of("")), HasSubstr("has no mask text"));
  EXPECT_THAT(message(problem_of("k <= q", "")), HasSubstr("has no blocks"));
  EXPECT_THAT(message(problem_of("k <= seqlen_q", "blocks=64 lengths=used")),
              AllOf(HasSubstr("names seqlen_q, which only a run of"), HasSubstr("lengths=used")));
  Problem with_array = problem_of("k <= first[0]");
  with_array.args = "int* first";
  EXPECT_THAT(message(with_array), HasSubstr("code_arguments is null"));
  const std::uint64_t null_array[] = {0};
  EXPECT_THAT(message(with_array, null_array), HasSubstr("code_arguments[0] is null"));
  Problem huge = problem_of("head != 3", "blocks=16");
  huge.seqlen_q = huge.seqlen_kv = 1 << 20;
  const Error error = error_of([&] { block_mask_from_text(device, huge); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("take larger blocks than 16x16"));
  BlockMaskShape odd = kShape;
  odd.block_q = 0;
  EXPECT_THAT(error_of([&] { block_mask_from_dense(device, odd, &odd); }).what(),
              HasSubstr("block_q=0"));
  EXPECT_THAT(error_of([&] { block_mask_from_dense(device, kShape, nullptr); }).what(),
              HasSubstr("a dense mask is null"));
}

TEST_F(DeviceBlockMaskTest, NoRowsOrNoKeysAreAnEmptyMask) {
  Device device = open();
  for (const char* sizes : {"0:200", "300:0"}) {
    Problem problem = parse_problem(std::string("fwd bf16 num_heads=2 head_dim=64 blocks=64 "
                                                "seqlen=") +
                                    sizes);
    problem.mask = "k <= q";
    const DeviceBlockMask mask = block_mask_from_text(device, problem);
    EXPECT_EQ(count_blocks(mask).density(), 0) << sizes;
    EXPECT_EQ(transposed(device, mask).full, 0) << sizes;
    EXPECT_NE(block_mask_ref(mask).columns, nullptr) << "a run wants an address";
  }
}

}  // namespace
}  // namespace attnforge
