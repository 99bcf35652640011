// npy.h - NumPy's .npy files: tensors in and out. Versions 1 to 3, little-endian, C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge::cli {

/// What stands before the values.
struct NpyHeader {
  std::string descr;  // as in the file: "<f2", "<f4", "<V2", "<u2", ...
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;  // of the first value in the file
};

struct NpyArray {
  NpyHeader header;
  std::vector<std::byte> data;  // as many bytes as shape and descr say
};

/// `start`: the first bytes of a file; `name` for messages. Throws Error(kIo) saying what is wrong
/// with the header.
NpyHeader parse_npy_header(std::string_view start, const std::string& name);

/// The type of the values: f2 is fp16, f4 is fp32, V2 (what ml_dtypes writes) is bf16, and so is u2
/// if `uint16_is_bf16`. Throws Error(kIo) for all others, with what to do.
DType npy_dtype(const NpyHeader& header, bool uint16_is_bf16, const std::string& name);

/// What a file of such values says: npy_dtype() reads it.
std::string_view npy_descr(DType dtype, bool uint16_is_bf16);

/// Throws Error(kIo): missing, not an .npy file, an unknown type, cut short, or longer than its
/// shape says.
NpyArray read_npy(const std::string& path);

/// The same of a file of float32 or int32 in this shape, in which kAnySize stands for any size.
/// Throws Error(kInvalidProblem), saying what the file holds and that `wanted`, which begins with
/// the type, is wanted, if it is another.
inline constexpr std::int64_t kAnySize = -1;
NpyArray read_npy(const std::string& path, std::span<const std::int64_t> shape,
                  const std::string& wanted);

template <class Value>
std::vector<Value> values_of(const NpyArray& array) {
  std::vector<Value> values(array.data.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), values.size() * sizeof(Value));
  return values;
}

/// Header of version 1 with the values after it aligned to 64 bytes, as NumPy does.
std::string npy_header_text(std::string_view descr, std::span<const std::int64_t> shape);

/// Throws Error(kIo).
void write_npy(const std::string& path, std::string_view descr, std::span<const std::int64_t> shape,
               std::span<const std::byte> data);

/// "[1, 4096, 32, 128]"
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace attnforge::cli
