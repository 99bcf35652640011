// element_format.h - the formats of tensors' elements, a row each: whatever depends on one asks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "attnforge/cxx20.h"

namespace attnforge {

/// Those from kInt8 on are of caches: of k and v alone. e4m3 and e5m2 are floats of 8 bits (OCP).
/// q8_0 and q4_0 are ggml's blocks: 32 elements with their scale, fp16, before them: 34 bytes, of
/// int8; and 18, of 4 bits from -8 on, the first 16 elements in the low halves.
enum class DType : std::uint8_t { kFp32, kFp16, kBf16, kInt8, kInt4, kE4m3, kE5m2, kQ8_0, kQ4_0 };

struct ElementFormat {
  DType dtype;
  std::string_view name;         // the word of problems: "bf16"
  std::string_view kernel_name;  // the constant of kernels: "kBf16"
  std::string_view ptx_name;     // of instructions: "bf16"
  std::string_view npy;          // descr of .npy files: "<V2"
  std::string_view npy_of_bits;  // where files may hold the bits as integers: "<u2"; else ""
  int bits;                      // of a number; those of less than 8 share bytes
  bool floating;                 // else integers
  double largest;                // finite number
  double roundoff;               // largest relative error of a rounding to the nearest
  double step;                   // between the numbers next to 0
  int tensor_map_type;           // CUtensorMapDataType

  // Of arrays in host memory. A rounding is to the nearest, ties to even, beyond the largest to
  // infinity, or of 8 and 4 bits to the largest. Of blocks whole ones are stored, each with the
  // scale that its largest magnitude asks for, and `round` gives x.
  void (*load)(const void* array, std::int64_t first, std::int64_t count, float* to);
  void (*store)(const float* from, std::int64_t count, void* array, std::int64_t first);
  float (*round)(float);

  int scale_bits = 0;  // of what lies among numbers for each 32 of them: 16 of blocks
  int bits_of_32() const { return 32 * bits + scale_bits; }
};

/// A row for each DType, in their order.
ATTNFORGE_API std::span<const ElementFormat> element_formats();
ATTNFORGE_API const ElementFormat& format_of(DType dtype);
ATTNFORGE_API std::string_view to_string(DType dtype);  // "fp32", "fp16", "bf16", "int8", ...
/// to_string() the other way.
ATTNFORGE_API std::optional<DType> dtype_named(std::string_view name);

/// Whether it is a format of caches: numbers of 8 bits or fewer.
constexpr bool is_low_bit(DType dtype) { return dtype >= DType::kInt8; }
/// Whether its elements lie in blocks with their scales: rows and strides are of whole blocks.
constexpr bool is_blocks(DType dtype) { return dtype == DType::kQ8_0 || dtype == DType::kQ4_0; }
inline constexpr int kBlockElements = 32;

/// Bytes of so many elements one after another. Whole bytes, of which the last may not be full; of
/// an estimate, a double, the share.
template <typename Count>
auto bytes_of(DType dtype, Count elements) {
  const int bits = format_of(dtype).bits_of_32();
  if constexpr (std::is_floating_point_v<Count>)
    return elements * bits / 256;
  else
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(elements) * bits + 255) >> 8;
}

/// Elements that so many bytes hold.
inline std::int64_t elements_in(DType dtype, std::size_t bytes) {
  return static_cast<std::int64_t>(bytes) * 256 / format_of(dtype).bits_of_32();
}

}  // namespace attnforge
