// element_formats.h - the table of formats. A new one is a value of DType, a row here, and one of
// element_bits() in templates/base.cuh, where blocks are bytes.
#pragma once

#include "attnforge/element_format.h"
#include "generator/formats/codes.h"
#include "generator/formats/half.h"

namespace attnforge {

/// Elements that are bits of a type Bits, to and from float.
template <typename Bits, float (*kToFloat)(Bits), Bits (*kFromFloat)(float)>
struct HostElements {
  static void load(const void* array, std::int64_t first, std::int64_t count, float* to) {
    const Bits* const from = static_cast<const Bits*>(array) + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] = kToFloat(from[i]);
  }
  static void store(const float* from, std::int64_t count, void* array, std::int64_t first) {
    Bits* const to = static_cast<Bits*>(array) + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] = kFromFloat(from[i]);
  }
  static float round(float x) { return kToFloat(kFromFloat(x)); }
};
constexpr float same_float(float x) { return x; }

using HostFp32 = HostElements<float, same_float, same_float>;
using HostFp16 = HostElements<std::uint16_t, fp16_to_float, float_to_fp16>;
using HostBf16 = HostElements<std::uint16_t, bf16_to_float, float_to_bf16>;
using HostE4m3 = HostElements<std::uint8_t, e4m3_to_float, float_to_e4m3>;
using HostE5m2 = HostElements<std::uint8_t, e5m2_to_float, float_to_e5m2>;

/// Integers as floats: exact, as they have few bits.
template <typename Integer>
constexpr float integer_to_float(Integer x) {
  return static_cast<float>(x);
}
using HostInt8 = HostElements<std::int8_t, integer_to_float<std::int8_t>, float_to_int8>;
inline float round_int4(float x) { return static_cast<float>(float_to_int4(x)); }

// The formats of .npy are what ml_dtypes writes; of int4 bytes of two, of blocks their bytes.
// Second lines: step, tensor map, load, store, round, scale_bits.
// clang-format off
inline constexpr ElementFormat kElementFormats[] = {
    // DType       name    kernels  PTX     .npy   its bits bits float  largest         roundoff
    {DType::kFp32, "fp32", "kFp32", "f32",  "<f4", "",      32,  true,  0x1.fffffep127, 0x1p-24,
     0x1p-149, 7, HostFp32::load, HostFp32::store, HostFp32::round},
    {DType::kFp16, "fp16", "kFp16", "f16",  "<f2", "",      16,  true,  65504,          0x1p-11,
     0x1p-24, 6, HostFp16::load, HostFp16::store, HostFp16::round},
    {DType::kBf16, "bf16", "kBf16", "bf16", "<V2", "<u2",   16,  true,  0x1.fep127,     0x1p-8,
     0x1p-133, 9, HostBf16::load, HostBf16::store, HostBf16::round},
    {DType::kInt8, "int8", "kInt8", "s8",   "|i1", "",      8,   false, 127,            0x1p-8,
     1, 0, HostInt8::load, HostInt8::store, HostInt8::round},
    {DType::kInt4, "int4", "kInt4", "s4",   "|u1", "",      4,   false, 7,              0x1p-4,
     1, 0, load_int4, store_int4, round_int4},
    {DType::kE4m3, "e4m3", "kE4m3", "e4m3", "|V1", "",      8,   true,  448,            0x1p-4,
     0x1p-9, 0, HostE4m3::load, HostE4m3::store, HostE4m3::round},
    {DType::kE5m2, "e5m2", "kE5m2", "e5m2", "<f1", "",      8,   true,  57344,          0x1p-3,
     0x1p-16, 0, HostE5m2::load, HostE5m2::store, HostE5m2::round},
    {DType::kQ8_0, "q8_0", "kQ8_0", "",     "|u1", "",      8,   false, 127,            0x1p-8,
     1, 0, load_q8_0, store_q8_0, same_float, 16},
    {DType::kQ4_0, "q4_0", "kQ4_0", "",     "|u1", "",      4,   false, 7,              0x1p-4,
     1, 0, load_q4_0, store_q4_0, same_float, 16},
};
// clang-format on

}  // namespace attnforge
