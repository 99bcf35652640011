// element_formats.h - the table of formats. A new one is a value of DType, a row here, and one of
// element_bits() in templates/base.cuh.
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

inline constexpr ElementFormat kElementFormats[] = {
    {.dtype = DType::kFp32,
     .name = "fp32",
     .kernel_name = "kFp32",
     .ptx_name = "f32",
     .npy = "<f4",
     .npy_of_bits = "",
     .bits = 32,
     .floating = true,
     .largest = 0x1.fffffep127,
     .roundoff = 0x1p-24,
     .step = 0x1p-149,
     .tensor_map_type = 7,
     .load = HostFp32::load,
     .store = HostFp32::store,
     .round = HostFp32::round},
    {.dtype = DType::kFp16,
     .name = "fp16",
     .kernel_name = "kFp16",
     .ptx_name = "f16",
     .npy = "<f2",
     .npy_of_bits = "",
     .bits = 16,
     .floating = true,
     .largest = 65504,
     .roundoff = 0x1p-11,
     .step = 0x1p-24,
     .tensor_map_type = 6,
     .load = HostFp16::load,
     .store = HostFp16::store,
     .round = HostFp16::round},
    {.dtype = DType::kBf16,
     .name = "bf16",
     .kernel_name = "kBf16",
     .ptx_name = "bf16",
     .npy = "<V2",  // what ml_dtypes writes
     .npy_of_bits = "<u2",
     .bits = 16,
     .floating = true,
     .largest = 0x1.fep127,
     .roundoff = 0x1p-8,
     .step = 0x1p-133,
     .tensor_map_type = 9,
     .load = HostBf16::load,
     .store = HostBf16::store,
     .round = HostBf16::round},
    {.dtype = DType::kInt8,
     .name = "int8",
     .kernel_name = "kInt8",
     .ptx_name = "s8",
     .npy = "|i1",
     .npy_of_bits = "",
     .bits = 8,
     .floating = false,
     .largest = 127,
     .roundoff = 0x1p-8,
     .step = 1,
     .tensor_map_type = 0,
     .load = HostInt8::load,
     .store = HostInt8::store,
     .round = HostInt8::round},
    {.dtype = DType::kInt4,
     .name = "int4",
     .kernel_name = "kInt4",
     .ptx_name = "s4",
     .npy = "|u1",  // bytes of two
     .npy_of_bits = "",
     .bits = 4,
     .floating = false,
     .largest = 7,
     .roundoff = 0x1p-4,
     .step = 1,
     .tensor_map_type = 0,
     .load = load_int4,
     .store = store_int4,
     .round = round_int4},
    {.dtype = DType::kE4m3,
     .name = "e4m3",
     .kernel_name = "kE4m3",
     .ptx_name = "e4m3",
     .npy = "|V1",  // what ml_dtypes writes
     .npy_of_bits = "",
     .bits = 8,
     .floating = true,
     .largest = 448,
     .roundoff = 0x1p-4,
     .step = 0x1p-9,
     .tensor_map_type = 0,
     .load = HostE4m3::load,
     .store = HostE4m3::store,
     .round = HostE4m3::round},
    {.dtype = DType::kE5m2,
     .name = "e5m2",
     .kernel_name = "kE5m2",
     .ptx_name = "e5m2",
     .npy = "<f1",  // what ml_dtypes writes
     .npy_of_bits = "",
     .bits = 8,
     .floating = true,
     .largest = 57344,
     .roundoff = 0x1p-3,
     .step = 0x1p-16,
     .tensor_map_type = 0,
     .load = HostE5m2::load,
     .store = HostE5m2::store,
     .round = HostE5m2::round},
};

}  // namespace attnforge
