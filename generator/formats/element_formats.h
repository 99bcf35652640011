// element_formats.h - the table of formats. A new one is a value of DType, a row here, and one of
// element_bits() in templates/base.cuh.
#pragma once

#include "attnforge/element_format.h"
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
};

}  // namespace attnforge
