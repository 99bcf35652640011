// tensor_map_test.cpp - what the driver is told of a tensor, on the fake driver.
#include "runtime/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "runtime/driver.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using test::FakeEncode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Operand = TensorMapSpec::Operand;

constexpr cuuint64_t kUnused = 16;  // the stride of a dimension of one element

void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

/// 2 sequences of 100 keys, 4 heads of 72, as bshd.
Tensor tensor() { return {address(0x10000), 100 * 4 * 72, 4 * 72, 72}; }
constexpr TensorMapSizes kSizes{.rows = 100, .heads = 4, .batch = 2};
TensorMapSpec spec(Operand operand = Operand::kK) {
  return {.operand = operand,
          .dtype = DType::kBf16,
          .columns = 72,
          .packed_heads = 0,
          .box_columns = 64,
          .box_rows = 80,
          .swizzle_bytes = 128};
}

class TensorMapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda().reset();
    ASSERT_EQ(driver_problem(), "");
  }
  /// The map of tensors that are all `each`; q has an address at least.
  static std::vector<std::byte> encode(const TensorMapSpec& map, const Tensor& each,
                                       const TensorMapSizes& sizes = kSizes) {
    Tensors tensors;
    tensors.q = tensors.k = tensors.v = tensors.o = each;
    tensors.q.data = each.data == nullptr ? address(0xa0000) : each.data;
    std::vector<std::byte> bytes(kTensorMapBytes);
    encode_tensor_map(map, sizes, tensors, bytes.data());
    return bytes;
  }
  /// What the driver was told of one tensor.
  static FakeEncode encoded(const TensorMapSpec& map, const Tensor& each,
                            const TensorMapSizes& sizes = kSizes) {
    fake_cuda().reset();
    encode(map, each, sizes);
    EXPECT_EQ(fake_cuda().encodes(), 1);
    return fake_cuda().encode(0);
  }
  static std::vector<cuuint64_t> extents(const FakeEncode& e) {
    return {e.extents, e.extents + e.rank};
  }
  static std::vector<cuuint64_t> strides_bytes(const FakeEncode& e) {
    return {e.strides_bytes, e.strides_bytes + (e.rank - 1)};
  }
  static std::vector<cuuint32_t> box(const FakeEncode& e) { return {e.box, e.box + e.rank}; }
};

TEST_F(TensorMapTest, ColumnsRowsHeadsAndBatch) {
  const FakeEncode e = encoded(spec(), tensor());
  EXPECT_EQ(e.address, tensor().data);
  EXPECT_THAT(extents(e), ElementsAre(72, 100, 4, 2));
  EXPECT_THAT(strides_bytes(e), ElementsAre(2 * 4 * 72, 2 * 72, 2 * 100 * 4 * 72));
  EXPECT_THAT(box(e), ElementsAre(64, 80, 1, 1));
  EXPECT_EQ(e.interleave, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(e.fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);  // zeros
}

TEST_F(TensorMapTest, PackedHeadsAreADimensionOfTheirOwnUnderTheRows) {
  TensorMapSpec packed = spec(Operand::kQ);
  packed.packed_heads = packed.box_heads = 2;
  packed.box_rows = 32;
  const FakeEncode e = encoded(packed, tensor());
  EXPECT_THAT(extents(e), ElementsAre(72, 2, 100, 2, 2));
  EXPECT_THAT(strides_bytes(e), ElementsAre(2 * 72, 2 * 4 * 72, 2 * 2 * 72, 2 * 100 * 4 * 72));
  EXPECT_THAT(box(e), ElementsAre(64, 2, 32, 1, 1));
}

TEST_F(TensorMapTest, OnePackedHeadKeepsTheFiveDimensions) {
  TensorMapSpec packed = spec(Operand::kQ);
  packed.packed_heads = packed.box_heads = 1;
  const FakeEncode e = encoded(packed, tensor());
  EXPECT_THAT(extents(e), ElementsAre(72, 1, 100, 4, 2));
  EXPECT_THAT(strides_bytes(e), ElementsAre(kUnused, 2 * 4 * 72, 2 * 72, 2 * 100 * 4 * 72));
  EXPECT_THAT(box(e), ElementsAre(64, 1, 80, 1, 1));
}

TEST_F(TensorMapTest, AllHeadsPackedLeaveOneGroup) {
  TensorMapSpec packed = spec(Operand::kQ);
  packed.packed_heads = packed.box_heads = 4;
  packed.box_rows = 16;
  const FakeEncode e = encoded(packed, tensor());
  EXPECT_THAT(extents(e), ElementsAre(72, 4, 100, 1, 2));
  EXPECT_THAT(strides_bytes(e), ElementsAre(2 * 72, 2 * 4 * 72, kUnused, 2 * 100 * 4 * 72));
}

TEST_F(TensorMapTest, ABoxMayHaveMoreRowsThanThereArePackedHeads) {
  TensorMapSpec packed = spec(Operand::kQ);
  packed.packed_heads = 4;
  packed.box_heads = 64;
  packed.box_rows = 1;
  const FakeEncode e = encoded(packed, tensor());
  EXPECT_THAT(extents(e), ElementsAre(72, 4, 100, 1, 2)) << "rows of the next group are no rows";
  EXPECT_THAT(box(e), ElementsAre(64, 64, 1, 1, 1));
}

TEST_F(TensorMapTest, StridesOfDimensionsOfOneElementMayBeAnything) {
  const TensorMapSizes one{.rows = 1, .heads = 1, .batch = 1};
  for (const std::int64_t stride : {std::int64_t{3}, std::int64_t{-8}, std::int64_t{1} << 60}) {
    const FakeEncode e = encoded(spec(), {address(0x10000), stride, stride, stride}, one);
    EXPECT_THAT(extents(e), ElementsAre(72, 1, 1, 1));
    EXPECT_THAT(strides_bytes(e), ElementsAre(kUnused, kUnused, kUnused));
  }
}

TEST_F(TensorMapTest, BoxMayBeLargerThanTheTensor) {
  TensorMapSpec tall = spec();
  tall.box_rows = 256;
  EXPECT_THAT(box(encoded(tall, tensor(), {.rows = 3, .heads = 4, .batch = 2})),
              ElementsAre(64, 256, 1, 1));
}

TEST_F(TensorMapTest, NoKeysNeedNoMemoryAndNoStrides) {
  const FakeEncode e = encoded(spec(), {nullptr, 0, 3, 5}, {.rows = 0, .heads = 4, .batch = 2});
  EXPECT_THAT(extents(e), ElementsAre(72, 1, 1, 1));
  EXPECT_NE(e.address, nullptr) << "drivers before 12.6 want an address, and never read there";
}

TEST_F(TensorMapTest, DtypesAndSwizzles) {
  struct Case {
    DType dtype;
    int swizzle_bytes;
    CUtensorMapDataType expected_dtype;
    CUtensorMapSwizzle expected_swizzle;
  };
  for (const Case& c :
       {Case{DType::kBf16, 128, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B},
        Case{DType::kFp16, 64, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_SWIZZLE_64B},
        Case{DType::kFp32, 32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_SWIZZLE_32B}}) {
    TensorMapSpec map = spec();
    map.dtype = c.dtype;
    map.swizzle_bytes = c.swizzle_bytes;
    map.box_columns = c.swizzle_bytes / bytes_of(c.dtype, 1);
    const FakeEncode e = encoded(map, tensor());
    EXPECT_EQ(e.dtype, c.expected_dtype);
    EXPECT_EQ(e.swizzle, c.expected_swizzle);
    EXPECT_EQ(e.strides_bytes[1], static_cast<cuuint64_t>(72 * bytes_of(c.dtype, 1)));
  }
}

TEST_F(TensorMapTest, IsWhatTheDriverWroteWhereverItGoes) {
  std::vector<std::byte> bytes(kTensorMapBytes + 9, std::byte{0x5a});
  Tensors tensors;
  tensors.k = tensor();
  // Aligned to 8, as on the stack of a run.
  encode_tensor_map(spec(), kSizes, tensors, bytes.data() + 8);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool map = i >= 8 && i < 8 + kTensorMapBytes;
    EXPECT_EQ(bytes[i], map ? std::byte{1} : std::byte{0x5a}) << i;
  }
}

TEST_F(TensorMapTest, OperandsTakeTheirOwnTensors) {
  Tensors tensors;
  tensors.q = tensors.k = tensors.v = tensor();
  tensors.q.data = address(0x100), tensors.k.data = address(0x200), tensors.v.data = address(0x300);
  std::vector<std::byte> bytes(kTensorMapBytes);
  for (const Operand operand : {Operand::kQ, Operand::kK, Operand::kV})
    encode_tensor_map(spec(operand), kSizes, tensors, bytes.data());
  ASSERT_EQ(fake_cuda().encodes(), 3);
  EXPECT_EQ(fake_cuda().encode(0).address, address(0x100));
  EXPECT_EQ(fake_cuda().encode(1).address, address(0x200));
  EXPECT_EQ(fake_cuda().encode(2).address, address(0x300));
}

TEST_F(TensorMapTest, TensorsThatTmaCannotAddressAreNamed) {
  const Tensor good = tensor();
  const Tensor bad[] = {{address(0x10008), good.stride_batch, good.stride_row, good.stride_head},
                        {good.data, good.stride_batch, good.stride_row + 4, good.stride_head},
                        {good.data, good.stride_batch, good.stride_row, -good.stride_head},
                        {good.data, std::int64_t{1} << 40, good.stride_row, good.stride_head},
                        // In bytes these are 128 modulo 2^64.
                        {good.data, (std::int64_t{1} << 63) + 64, good.stride_row, 72},
                        {good.data, good.stride_batch, (std::int64_t{1} << 63) + 64, 72}};
  for (const auto& [name, operand] :
       {std::pair("q", Operand::kQ), {"k", Operand::kK}, {"v", Operand::kV}}) {
    for (const Tensor& each : bad) {
      try {
        encode(spec(operand), each);
        ADD_FAILURE() << "no error was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(), HasSubstr(std::string("address ") + name + " at "));
        EXPECT_THAT(error.what(), HasSubstr(std::to_string(each.stride_row)));
      }
    }
  }
}

}  // namespace
}  // namespace attnforge
