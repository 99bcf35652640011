// element_formats_test.cpp - the table of element formats, and what follows it: this program's has
// a made-up row of 4 bits after those of the library.
#include "generator/formats/element_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"
#include "cache/near_problems.h"
#include "cli/files/npy.h"
#include "generator/problem/bucket.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operands.h"
#include "generator/tensors/tensor_check.h"
#include "plan/checks/pointer_check.h"
#include "reference/compare/tolerance.h"
#include "reference/half.h"
#include "reference/parts/pages.h"
#include "runtime/tensor_map.h"
#include "templates/host/tile_order.h"
#include "templates/shape.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using ::testing::HasSubstr;

constexpr auto kMadeUp = static_cast<DType>(std::size(kElementFormats));

int shift(std::int64_t i) { return static_cast<int>(i % 2 * 4); }
float round_made_up(float x) { return std::clamp(std::nearbyint(x), -8.0f, 7.0f); }
void load_made_up(const void* array, std::int64_t first, std::int64_t count, float* to) {
  for (std::int64_t i = first; i < first + count; ++i)
    *to++ = static_cast<float>((static_cast<const unsigned char*>(array)[i / 2] >> shift(i) & 15) -
                               8);
}
void store_made_up(const float* from, std::int64_t count, void* array, std::int64_t first) {
  for (std::int64_t i = first; i < first + count; ++i) {
    auto& byte = static_cast<unsigned char*>(array)[i / 2];
    const auto bits = static_cast<unsigned>(round_made_up(*from++) + 8) << shift(i);
    byte = static_cast<unsigned char>((byte & ~(15u << shift(i))) | bits);
  }
}

}  // namespace

std::span<const ElementFormat> element_formats() {
  static const auto kRows = [] {
    std::array<ElementFormat, std::size(kElementFormats) + 1> rows;
    std::ranges::copy(kElementFormats, rows.begin());
    rows.back() = {.dtype = kMadeUp,
                   .name = "made_up",
                   .kernel_name = "kMadeUp",
                   .ptx_name = "s4",
                   .npy = "|V9",
                   .npy_of_bits = "<u9",
                   .bits = 4,
                   .floating = false,
                   .largest = 7,
                   .roundoff = 0x1p-3,
                   .step = 1,
                   .tensor_map_type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
                   .load = load_made_up,
                   .store = store_made_up,
                   .round = round_made_up};
    return rows;
  }();
  return kRows;
}

namespace {

/// Of 2 sequences of 3 keys of 4 heads; k and v are of `dtype`.
Problem problem_with(DType dtype, const std::string& words = "") {
  Problem p = parse_problem("fwd bf16 batch=2 num_heads=4 seqlen=3 head_dim=40:24 alignment=4 " +
                            words);
  p.dtype_k = p.dtype_v = dtype;
  return p;
}

const Operand& named(const std::vector<Operand>& list, std::string_view name) {
  return *std::ranges::find(list, name, &Operand::name);
}

TEST(ElementFormats, RowsKnowTheirNumbers) {
  for (const ElementFormat& row : element_formats()) {
    const DType dtype = row.dtype;
    EXPECT_EQ(&format_of(dtype), &row);
    EXPECT_EQ(dtype_named(row.name), dtype);
    EXPECT_EQ(to_string(dtype), row.name);
    if (is_blocks(dtype)) continue;
    std::vector<std::byte> array(static_cast<std::size_t>(bytes_of(dtype, 4)));
    for (int i = 0; i < 4; ++i) store_element(dtype, array.data(), i, static_cast<float>(i - 2));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(load_element(dtype, array.data(), i), i - 2) << row.name;
    double some[2];
    load_elements(dtype, array.data(), 1, 2, some);
    EXPECT_EQ(some[0], -1.0);
    EXPECT_EQ(some[1], 0.0);
    EXPECT_EQ(elements_in(dtype, array.size()), 4);

    const auto largest = static_cast<float>(row.largest);
    EXPECT_EQ(round_to(dtype, largest), largest) << row.name;
    const float above = round_to(dtype, largest * (1 + 4 * static_cast<float>(row.roundoff)));
    const bool has_infinity = !is_low_bit(dtype);
    EXPECT_EQ(above, has_infinity ? INFINITY : largest) << row.name;
    const auto step = static_cast<float>(row.step);
    EXPECT_EQ(round_to(dtype, step), step) << row.name;
    if (dtype != DType::kFp32)  // there is no float between
      EXPECT_EQ(round_to(dtype, 0.4f * step), 0.0f) << row.name;
    if (!row.floating) continue;
    EXPECT_EQ(round_to(dtype, 1.0f + static_cast<float>(unit_roundoff(dtype))), 1.0f);
    EXPECT_NE(round_to(dtype, 1.0f + static_cast<float>(2 * unit_roundoff(dtype))), 1.0f);
  }
  EXPECT_EQ(dtype_named("bf17"), std::nullopt);
}

TEST(ElementFormats, BytesOfRows) {
  EXPECT_EQ(bytes_of(kMadeUp, 40), 20);
  EXPECT_EQ(bytes_of(kMadeUp, 3), 2) << "whole bytes";
  EXPECT_EQ(bytes_of(kMadeUp, -40), -20) << "strides may go back";
  EXPECT_EQ(bytes_of(kMadeUp, 3.0), 1.5) << "of an estimate";
  EXPECT_EQ(bytes_of(DType::kFp32, 40), 160);
  for (const ElementFormat& row : kElementFormats) {  // as kernels count them
    const auto dtype = static_cast<int>(row.dtype);
    if (is_blocks(row.dtype)) continue;
    EXPECT_EQ(bytes_of(dtype, 40), bytes_of(row.dtype, 40));
    EXPECT_EQ(chunks_of(dtype, 40), (row.bits * 40 + 127) / 128);
  }
}

TEST(ElementFormats, OperandsHaveTheirBytes) {
  for (const ElementFormat& row : element_formats()) {
    if (is_blocks(row.dtype)) continue;
    const Problem p = problem_with(row.dtype);
    const std::vector<Operand> list = operands(p);
    const auto elements = std::size_t{2} * 3 * 4;
    EXPECT_EQ(named(list, "k").bytes(), elements * 40 * row.bits / 8) << row.name;
    EXPECT_EQ(named(list, "v").bytes(), elements * 24 * row.bits / 8) << row.name;
    EXPECT_EQ(named(list, "v").row_bytes(), std::size_t{4} * 24 * row.bits / 8) << row.name;
    EXPECT_EQ(named(list, "o").bytes(), elements * 24 * 2);

    HostTensors host;
    for (const Operand& operand : list) operand.resize(host, operand.bytes());
    EXPECT_EQ(host.k.size(), elements * 40 * row.bits / 8);
    check_sizes(p, list, host);
    EXPECT_EQ(rows_in(named(list, "k"), host), 2 * 3);
    host.k.pop_back();
    EXPECT_THROW(check_sizes(p, list, host), Error);
  }
}

TEST(ElementFormats, PagesHaveTheirBytes) {
  const Problem p = problem_with(kMadeUp, "lengths=used page_size=8");
  HostTensors host;
  host.k.resize(3 * 8 * 4 * 20);
  EXPECT_EQ(page_table_of(p, host).num_pages, 3);
}

TEST(ElementFormats, PackedTensorsLieBesideOneAnother) {
  Problem p = problem_with(kMadeUp);
  std::array<std::byte, 1> memory;
  Tensor q, k, v;
  bind_packed(p, kMadeUp, memory.data(), q, k, v);
  EXPECT_EQ(static_cast<std::byte*>(k.data) - memory.data(), 4 * 20);
  EXPECT_EQ(static_cast<std::byte*>(v.data) - memory.data(), 8 * 20);
}

/// Why a run refuses k with this stride from row to row: "" if it does not.
std::string refused(const Problem& p, std::int64_t stride_row) {
  const Tensor usual{reinterpret_cast<void*>(0x1000), 3 * 4 * 160, 4 * 160, 160};
  Tensors tensors;
  tensors.q = tensors.k = tensors.v = tensors.o = usual;
  tensors.k.stride_row = stride_row;
  try {
    PointerCheck{p}(p, tensors, nullptr, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ElementFormats, StridesAreAlignedInBytes) {
  EXPECT_EQ(refused(problem_with(kMadeUp), 168), "") << "84 bytes";
  EXPECT_THAT(refused(problem_with(kMadeUp), 172), HasSubstr("elements of 4 bits")) << "86 bytes";
  EXPECT_THAT(refused(problem_with(kMadeUp), 169), HasSubstr("not a multiple of 4 bytes"));
  EXPECT_EQ(refused(problem_with(DType::kBf16), 162), "");
  EXPECT_THAT(refused(problem_with(DType::kBf16), 161), HasSubstr("elements of 16 bits"));
}

TEST(LowBits, ProblemsSayWhatDoesNotGoWithThem) {
  const auto refusal = [](const std::string& words) -> std::string {
    try {
      parse_problem(words + " batch=2 num_heads=4:2 seqlen=8:64 head_dim=64");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("fwd bf16 k=int8 v=int4 kv_scale=token"), "");
  EXPECT_THAT(refusal("fwd fp32 k=int8 v=int8 kv_scale=token"),
              HasSubstr("needs q in fp16 or bf16, not q=fp32"));
  EXPECT_THAT(refusal("fwd bf16 k=int8 rope=half"), HasSubstr("rotate q, and k before"));
  EXPECT_THAT(refusal("bwd bf16 k=e4m3"), HasSubstr("does not go with bwd"));
  EXPECT_THAT(refusal("fwd bf16 kv_scale=head"), HasSubstr("needs k or v of 8 or 4 bits"));
  EXPECT_EQ(refusal("append bf16 k=int8 v=bf16 kv_scale=group64 rope=half queries"), "");
  EXPECT_THAT(refusal("append fp32 k=int8 v=int8 rope=half queries"),
              HasSubstr("needs q in fp16 or bf16"));
  EXPECT_THAT(refusal("append fp16 k=bf16 v=int8"), HasSubstr("makes 8 or 4 bits of them"));
  EXPECT_THAT(refusal("append bf16 kv_scale=token rope=half queries"),
              HasSubstr("needs k or v of 8 or 4 bits"));
  EXPECT_EQ(refusal("fwd bf16 k=int4 v=int4 kv_scale=token kv_zero"), "");
  EXPECT_EQ(refusal("append bf16 k=int4 v=bf16 kv_scale=group32 kv_zero rope=half queries"), "");
  EXPECT_THAT(refusal("fwd bf16 k=int4 v=int8 kv_scale=token kv_zero"),
              HasSubstr("kv_zero is of int4, not v=int8: of 8 bits a scale alone loses little"));
  EXPECT_THAT(refusal("fwd bf16 k=e4m3 v=int4 kv_scale=token kv_zero"), HasSubstr("not k=e4m3"));
  EXPECT_THAT(refusal("fwd bf16 k=q4_0 v=q4_0 kv_zero"), HasSubstr("blocks have scales alone"));
  EXPECT_THAT(refusal("fwd bf16 k=int4 v=int4 kv_scale=head kv_zero"),
              HasSubstr("kv_zero needs kv_scale=token or groups, not head"));
  EXPECT_THAT(refusal("fwd bf16 k=int4 v=int4 kv_zero"), HasSubstr("groups, not none"));
  EXPECT_THAT(refusal("fwd bf16 kv_zero"), HasSubstr("kv_zero needs k or v of int4"));
  const Problem append = parse_problem("append fp16 k=int4 v=fp16 kv_scale=head head_dim=64:32");
  EXPECT_EQ(append.dtype_o, DType::kFp16);
  EXPECT_EQ(parse_problem(to_string(append)), append);
}

/// Values of blocks that were made by hand, as ggml has them.
TEST(Blocks, HoldTheirScaleAndTheNumbersAfterIt) {
  std::vector<unsigned char> array(std::size_t{2} * 34);
  unsigned char* const second = array.data() + 34;
  second[0] = 0x00, second[1] = 0x38;  // 0.5
  for (int i = 0; i < 32; ++i) second[2 + i] = static_cast<unsigned char>(8 * i - 128);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(load_element(DType::kQ8_0, array.data(), 32 + i), 0.5f * float(8 * i - 128));
    EXPECT_EQ(load_element(DType::kQ8_0, array.data(), i), 0.0f);
  }
  unsigned char small[18] = {0x00, 0xc0};  // -2
  for (int i = 0; i < 16; ++i) small[2 + i] = static_cast<unsigned char>(i | (15 - i) << 4);
  double values[32];
  load_elements(DType::kQ4_0, small, 0, 32, values);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], -2.0 * (i - 8)) << "low halves";
    EXPECT_EQ(values[16 + i], -2.0 * (7 - i)) << "high halves";
  }
}

TEST(Blocks, ComeBackFromTheirValues) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    float values[64], back[64];
    for (int i = 0; i < 64; ++i)
      values[i] = i < 32 ? 0.25f * float(i % 16 - 8) : 0.0f;  // -2 is the farthest from 0
    const auto bytes = static_cast<std::size_t>(bytes_of(dtype, 64));
    EXPECT_EQ(bytes, dtype == DType::kQ8_0 ? 68u : 36u);
    EXPECT_EQ(elements_in(dtype, bytes), 64);
    EXPECT_EQ(bytes_of(dtype, -32), dtype == DType::kQ8_0 ? -34 : -18) << "strides may go back";
    std::vector<std::byte> array(bytes, std::byte{0xff});
    format_of(dtype).store(values, 64, array.data(), 0);
    format_of(dtype).load(array.data(), 0, 64, back);
    const float error = dtype == DType::kQ8_0 ? 2.0f / 127 / 2 + 0.002f : 0.0f;
    for (int i = 0; i < 64; ++i) EXPECT_NEAR(back[i], values[i], error) << i;
    EXPECT_THROW(store_element(dtype, array.data(), 0, 1.0f), Error) << "whole blocks";
  }
}

TEST(Blocks, ProblemsSayWhatDoesNotGoWithThem) {
  const auto refusal = [](const std::string& words) -> std::string {
    try {
      parse_problem(words + " batch=2 num_heads=4:2 seqlen=8:64");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("fwd bf16 k=q8_0 v=q4_0 head_dim=64 lengths=used page_size=16"), "");
  EXPECT_EQ(refusal("fwd fp16 v=q4_0 head_dim=40:96"), "");
  EXPECT_THAT(refusal("fwd fp16 k=q8_0 head_dim=40:96"), HasSubstr("multiple of 32"));
  EXPECT_THAT(refusal("fwd fp16 v=q4_0 head_dim=64:40"), HasSubstr("head_dim_v=40"));
  EXPECT_THAT(refusal("fwd bf16 k=q8_0 v=q8_0 kv_scale=group32 head_dim=64"),
              HasSubstr("leave kv_scale=group32 out"));
  EXPECT_THAT(refusal("fwd bf16 k=q8_0 v=int8 head_dim=64"), HasSubstr("does not go together"));
  EXPECT_THAT(refusal("fwd fp32 k=q8_0 v=q8_0 head_dim=64"), HasSubstr("needs q in fp16 or bf16"));
  EXPECT_THAT(refusal("bwd bf16 k=q8_0 head_dim=64"), HasSubstr("does not go with bwd"));
  EXPECT_THAT(refusal("append bf16 k=q8_0 v=q8_0 head_dim=64"), HasSubstr("8 or 4 bits of them"));
  EXPECT_THAT(refusal("fwd bf16 k=q8_0 head_dim=64 alignment=2"), HasSubstr("4 or more"));
}

/// Strides are of whole blocks, whatever they are in bytes.
TEST(Blocks, RowsBeginWithBlocks) {
  const Problem p = parse_problem(
      "fwd bf16 k=q8_0 v=q4_0 batch=2 num_heads=4:2 seqlen=8:64 head_dim=96:32");
  HostTensors host = allocate_host_tensors(p);
  EXPECT_EQ(host.k.size(), 2u * 64 * 2 * 102);
  EXPECT_EQ(host.v.size(), 2u * 64 * 2 * 18);
  alignas(16) char memory[16];
  Tensors t;
  t.k = {memory, 64 * 2 * 96, 2 * 96, 96};
  check_tensor("k", t.k, p.dtype_k, 2, 2, 64, p);
  t.k.stride_row += 16;
  EXPECT_THROW(check_tensor("k", t.k, p.dtype_k, 2, 2, 64, p), Error);
}

TEST(LowBits, AnAppendWritesScalesOfRowsAndReadsOthers) {
  for (const auto& [scale, written, numbers] :
       {std::tuple("token", true, 2 * 40 * 4), {"group64", true, 2 * 40 * 8}, {"head", false, 4}}) {
    const Problem p = parse_problem(fmt::format(
        "append bf16 k=int8 v=e5m2 kv_scale={} batch=2 num_heads=4 seqlen=3:40 head_dim=96",
        scale));
    EXPECT_EQ(writes(p, "k_scale"), written) << scale;
    EXPECT_TRUE(reads(p, "v_scale")) << "those of other rows stay";
    const HostTensors host = allocate_host_tensors(p);
    EXPECT_EQ(host.k_scale.size(), std::size_t(numbers)) << scale;
    EXPECT_EQ(host.k.size(), 2u * 3 * 4 * 96 * 2) << "new rows are of 16 bits";
    EXPECT_EQ(host.k_cache.size(), 2u * 40 * 4 * 96);
  }
}

TEST(LowBits, ScalesOfGroupsComeInWholeCopies) {
  const Problem p = parse_problem(
      "fwd bf16 k=int8 v=int4 kv_scale=group32 batch=2 num_heads=4:2 seqlen=8:64 head_dim=64:96");
  const auto refused = [&](const auto& change) -> std::string {
    Tensors t;
    t.q = t.k = t.v = t.o = {reinterpret_cast<void*>(0x1000), 64 * 256, 256, 128};
    t.k_scale = {reinterpret_cast<float*>(0x1008), 64 * 4, 4, 2};
    t.v_scale = {reinterpret_cast<float*>(0x1004), 64 * 6, 6, 3};
    change(t);
    try {
      PointerCheck{p}(p, t, nullptr, 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused([](Tensors&) {}), "") << "two and three scales a row";
  EXPECT_EQ(refused([](Tensors& t) { t.v_scale.stride_row = 7; }), "");
  EXPECT_THAT(refused([](Tensors& t) { t.k_scale.stride_row = 5; }),
              HasSubstr("k_scale has strides 256, 5 and 2"));
  EXPECT_THAT(refused([](Tensors& t) { t.k_scale.data += 1; }),
              HasSubstr("not a multiple of 8 bytes"));
  EXPECT_THAT(refused([](Tensors& t) { t.v_scale.data = nullptr; }),
              HasSubstr("v_scale is null, but the problem says kv_scale=group32"));
}

/// Pairs come in one copy.
TEST(LowBits, ZeroPointsLieAfterTheirScales) {
  const Problem p = parse_problem(
      "fwd bf16 k=int4 v=int4 kv_scale=token kv_zero batch=2 num_heads=4:2 seqlen=8:64 "
      "head_dim=64");
  EXPECT_EQ(parse_problem(to_string(p)), p);
  EXPECT_EQ(allocate_host_tensors(p).k_scale.size(), 2u * 64 * 2 * 2);
  const Tensors t = contiguous_tensors(p);
  EXPECT_EQ(t.k_scale.stride_head, 2);
  EXPECT_EQ(t.k_scale.stride_row, 4);
  Problem plain = p;
  plain.kv_zero = false;
  EXPECT_EQ(minimum_bytes(p) - minimum_bytes(plain), 2 * 2 * 64 * 2 * 4) << "a float for each row";
  EXPECT_NE(bucket(p), bucket(plain)) << "another kernel";
}

TEST(ElementFormats, EstimatesCountTheirBytes) {
  const double less = minimum_bytes(problem_with(DType::kBf16)) -
                      minimum_bytes(problem_with(kMadeUp));
  EXPECT_EQ(less, 2 * 3 * 4 * (40 + 24) * 1.5);
  EXPECT_EQ(key_bytes(problem_with(kMadeUp)), 20 + 12);
  EXPECT_EQ(key_bytes(problem_with(DType::kFp32)), 4 * (40 + 24));
}

TEST(ElementFormats, TolerancesFollowTheRoundingsOfProbabilities) {
  const auto rtol = [](const Problem& p) { return output_tolerance(p, 1.0).rtol; };
  Problem p = problem_with(DType::kFp16);
  p.dtype_q = p.dtype_o = DType::kFp16;
  const double fp16 = rtol(p);
  p.dtype_k = p.dtype_v = DType::kInt8;
  EXPECT_EQ(rtol(p), fp16) << "codes are widened to q's dtype";
}

TEST(ElementFormats, AnotherSizeIsNoNearProblem) {
  EXPECT_TRUE(distance(problem_with(DType::kBf16), problem_with(DType::kFp16)).has_value());
  EXPECT_FALSE(distance(problem_with(DType::kBf16), problem_with(kMadeUp)).has_value());
}

TEST(ElementFormats, TensorMapsHaveTheirStridesAndTypes) {
  ASSERT_EQ(format_of(DType::kFp32).tensor_map_type, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
  ASSERT_EQ(format_of(DType::kFp16).tensor_map_type, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
  ASSERT_EQ(format_of(DType::kBf16).tensor_map_type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  for (const ElementFormat& row : element_formats()) {
    if (is_blocks(row.dtype)) continue;  // TMA takes none
    Tensors tensors;
    tensors.q = tensors.k = {reinterpret_cast<void*>(0x1000), 3 * 4 * 160, 4 * 160, 160};
    std::array<std::byte, kTensorMapBytes> map;
    test::fake_cuda().reset();
    encode_tensor_map({.operand = TensorMapSpec::Operand::kK,
                       .dtype = row.dtype,
                       .columns = 40,
                       .box_columns = 16,
                       .box_rows = 8},
                      {.rows = 3, .heads = 4, .batch = 2}, tensors, map.data());
    const test::FakeEncode e = test::fake_cuda().encode(0);
    EXPECT_EQ(e.dtype, row.tensor_map_type);
    EXPECT_EQ(e.strides_bytes[0], 4u * 160 * static_cast<unsigned>(row.bits) / 8) << row.name;
    EXPECT_EQ(e.strides_bytes[1], 160u * static_cast<unsigned>(row.bits) / 8) << row.name;
  }
}

TEST(ElementFormats, FilesHaveTheirDescr) {
  for (const ElementFormat& row : element_formats()) {
    const auto read = [](std::string_view descr, bool bits) {
      return cli::npy_dtype({.descr = std::string(descr), .shape = {1}}, bits, "x.npy");
    };
    const DType found = is_blocks(row.dtype) ? DType::kInt4 : row.dtype;  // both are bytes
    EXPECT_EQ(read(cli::npy_descr(row.dtype, false), false), found);
    EXPECT_EQ(read(cli::npy_descr(row.dtype, true), true), found);
    EXPECT_EQ(cli::npy_descr(row.dtype, false), row.npy);
  }
}

TEST(ElementFormats, AProblemMayHaveThoseOfTheLibrary) {
  for (const ElementFormat& row : kElementFormats) {
    EXPECT_EQ(parse_problem("fwd head_dim=64 k=" + std::string(row.name)).dtype_k, row.dtype);
    if (is_low_bit(row.dtype)) {
      EXPECT_EQ(find_field(row.name) != nullptr, row.dtype == DType::kE4m3) << "of q, too";
      EXPECT_THROW(parse_problem("fwd q=" + std::string(row.name)), Error);
      continue;
    }
    EXPECT_EQ(parse_problem("fwd " + std::string(row.name)).dtype_k, row.dtype);
    EXPECT_NE(find_field(row.name), nullptr) << "a row of the table of fields";
  }
  EXPECT_THROW(parse_problem("fwd k=made_up"), Error) << "not served";
  EXPECT_THROW(validate(problem_with(kMadeUp)), Error);
}

/// All of 8 bits come back, and floats between them are rounded to the nearest.
TEST(ElementFormats, CodesComeBack) {
  for (const DType dtype : {DType::kInt8, DType::kE4m3, DType::kE5m2}) {
    float before = 0;
    for (int bits = 0; bits < 128; ++bits) {
      const auto code = static_cast<unsigned char>(bits);
      const float x = load_element(dtype, &code, 0);
      unsigned char back = 0;
      store_element(dtype, &back, 0, x);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(load_element(dtype, &back, 0)));
        continue;
      }
      EXPECT_EQ(back, code) << to_string(dtype);
      unsigned char negative = 0;
      store_element(dtype, &negative, 0, -x);
      EXPECT_EQ(load_element(dtype, &negative, 0), -x);
      if (bits > 0 && std::isfinite(x)) {
        const float middle = before + (x - before) / 2;
        EXPECT_EQ(round_to(dtype, std::nextafter(middle, before)), before) << to_string(dtype);
        EXPECT_EQ(round_to(dtype, std::nextafter(middle, x)), x) << to_string(dtype);
        EXPECT_EQ(round_to(dtype, middle), bits % 2 == 0 ? x : before) << "to even";
      }
      before = x;
    }
  }
}

}  // namespace
}  // namespace attnforge
