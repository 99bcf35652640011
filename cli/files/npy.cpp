// npy.cpp - the format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "cli/files/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/files/text_files.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are copied between files and memory as they are");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t
    kMaxHeaderBytes = 1 << 16;  // ours need 100; a longer one is not an array of numbers

/// The Python literal of a header as JSON. Only strings, True, False and tuples of integers, which
/// Python 2 wrote with an L, occur in one; a comma may stand before a closing bracket.
std::string as_json(std::string_view literal) {
  std::string json;
  char quote = '\0';
  for (const char c : literal) {
    if (c == quote || (quote == '\0' && (c == '\'' || c == '"'))) {
      quote = quote == '\0' ? c : '\0';
      json += '"';
    } else if (quote != '\0') {
      if (c == '"' || c == '\\') json += '\\';
      json += c;
    } else if (c == ')' || c == ']' || c == '}') {
      const std::size_t last = json.find_last_not_of(" \n");
      if (last != json.npos && json[last] == ',') json.resize(last);
      json += c == ')' ? ']' : c;
    } else if (c != 'L') {
      json += c == '(' ? '[' : c == 'T' ? 't' : c == 'F' ? 'f' : c;
    }
  }
  return json;
}

NpyHeader header_of(std::string_view literal, const std::string& name) {
  const nlohmann::json dict = nlohmann::json::parse(as_json(literal), nullptr, false);
  if (!dict.is_object()) {
    refuse(kIo,
           "{}: its .npy header is damaged: \"{}\" is not a dict of strings, True or False, and "
           "tuples of sizes",
           name, literal.substr(0, 100));
  }
  for (const auto& [key, value] : dict.items()) {
    if (key == "descr" || key == "fortran_order" || key == "shape") continue;
    refuse(kIo, "{}: its .npy header has the key \"{}\", which no version of the format knows",
           name, key);
  }
  if (dict.size() < 3)
    refuse(kIo, "{}: its .npy header lacks one of descr, fortran_order and shape", name);
  const nlohmann::json &descr = dict["descr"], &fortran_order = dict["fortran_order"],
                       &shape = dict["shape"];
  if (descr.is_array())
    refuse(kIo, "{}: it is a structured array; save a plain array of numbers", name);
  if (!descr.is_string() || !fortran_order.is_boolean() || !shape.is_array()) {
    refuse(kIo,
           "{}: its .npy header is damaged: descr must be a string, fortran_order True or False, "
           "and shape a tuple",
           name);
  }
  for (const nlohmann::json& size : shape) {
    if (!size.is_number_integer() || size.get<std::int64_t>() < 0)
      refuse(kIo, "{}: its .npy header is damaged: no array has the size {}", name, size.dump());
  }
  if (fortran_order.get<bool>() && shape.size() > 1) {
    refuse(kIo, "{}: its values are in Fortran order; save numpy.ascontiguousarray(x) instead",
           name);
  }
  return {descr.get<std::string>(), shape.get<std::vector<std::int64_t>>(), 0};
}

/// Bytes a value, from the digits of descr. Throws for what has none.
std::size_t item_bytes(const NpyHeader& header, const std::string& name) {
  const std::string_view descr = header.descr;
  const char* const end = descr.data() + descr.size();
  std::size_t bytes = 0;
  if (descr.size() >= 3) {
    const auto [after, error] = std::from_chars(descr.data() + 2, end, bytes);
    if (error == std::errc() && after == end && bytes > 0 && bytes <= 1024) return bytes;
  }
  refuse(kIo, "{}: its values are of type \"{}\"; save numbers, as in x.astype(numpy.float16)",
         name, descr);
}

std::size_t data_bytes(const NpyHeader& header, const std::string& name) {
  std::size_t bytes = item_bytes(header, name);
  bool empty = false;
  for (std::int64_t size : header.shape) {
    empty = empty || size == 0;
    if (size == 0) continue;  // the product of the others must fit too: callers multiply them
    if (static_cast<std::size_t>(size) > (std::size_t{1} << 62) / bytes) {
      refuse(kIo, "{}: its shape {} is too large for any memory", name, shape_text(header.shape));
    }
    bytes *= static_cast<std::size_t>(size);
  }
  return empty ? 0 : bytes;
}

}  // namespace

NpyHeader parse_npy_header(std::string_view start, const std::string& name) {
  if (!start.starts_with(kMagic))
    refuse(kIo, "{}: it is not an .npy file; save one with numpy.save(path, x)", name);
  const auto require = [&](std::size_t bytes) {
    if (start.size() < bytes) refuse(kIo, "{}: it is cut short in its .npy header", name);
  };
  require(10);
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(start[at]));
  };
  const std::size_t major = byte(6);
  if (major < 1 || major > 3) {
    refuse(kIo, "{}: it is of .npy format version {}.{}; versions 1 to 3 are read", name, major,
           byte(7));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t text_offset = 8 + length_bytes;
  require(text_offset);
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  if (length > kMaxHeaderBytes)
    refuse(kIo, "{}: its .npy header claims {} bytes; it is damaged", name, length);
  require(text_offset + length);
  NpyHeader header = header_of(start.substr(text_offset, length), name);
  header.data_offset = text_offset + length;
  return header;
}

DType npy_dtype(const NpyHeader& header, bool uint16_is_bf16, const std::string& name) {
  const std::string& descr = header.descr;
  for (const ElementFormat& format : element_formats()) {
    // Bytes without a meaning have no order.
    const bool same = descr == format.npy ||
                      (descr.starts_with("|V") &&
                       std::string_view(descr).substr(1) == format.npy.substr(1));
    if (same || (uint16_is_bf16 && descr == format.npy_of_bits)) return format.dtype;
  }
  if (descr == "<u2")
    refuse(kIo, "{}: its values are of type uint16; if they are the bits of bf16, say --bf16",
           name);
  if (descr == ">f2" || descr == ">f4" || descr == ">u2") {
    refuse(kIo,
           "{}: its values are big-endian (\"{}\"); save x.astype(x.dtype.newbyteorder(\"<\"))",
           name, descr);
  }
  refuse(kIo,
         "{}: its values are of type \"{}\"; float16 (\"<f2\"), float32 (\"<f4\"), bfloat16 "
         "(\"<V2\", or \"<u2\" with --bf16) are read, of k and v also int8, uint8 of two int4 or "
         "blocks, "
         "and float8_e4m3fn and float8_e5m2 of ml_dtypes",
         name, descr);
}

std::string_view npy_descr(DType dtype, bool uint16_is_bf16) {
  const ElementFormat& format = format_of(dtype);
  return uint16_is_bf16 && !format.npy_of_bits.empty() ? format.npy_of_bits : format.npy;
}

NpyArray read_npy(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string start(kMaxHeaderBytes + 12, '\0');
  if (file) file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (!file.is_open() || file.bad()) {
    refuse(kIo, "{}: cannot be read: {}", path, errno_text("not a regular file"));
  }
  NpyArray array{parse_npy_header(start, path), {}};
  const std::size_t wanted = data_bytes(array.header, path);

  file.clear();
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::size_t>(std::max<std::streamoff>(file.tellg(), 0));
  const std::size_t there = size - std::min(size, array.header.data_offset);
  if (there != wanted) {
    refuse(kIo,
           "{}: its shape {} of \"{}\" needs {} bytes of values, but the file has {}; it is {}",
           path, shape_text(array.header.shape), array.header.descr, wanted, there,
           there < wanted ? "cut short" : "damaged or holds more than one array");
  }
  array.data.resize(wanted);
  file.seekg(static_cast<std::streamoff>(array.header.data_offset));
  file.read(reinterpret_cast<char*>(array.data.data()), static_cast<std::streamsize>(wanted));
  if (!file) refuse(kIo, "{}: its values cannot be read; did the file change meanwhile?", path);
  return array;
}

NpyArray read_npy(const std::string& path, std::span<const std::int64_t> shape,
                  const std::string& wanted) {
  NpyArray array = read_npy(path);
  const bool fits = std::ranges::equal(array.header.shape, shape, [](auto has, auto size) {
    return size == kAnySize || has == size;
  });
  if (!fits || array.header.descr != (wanted.starts_with("float32") ? "<f4" : "<i4")) {
    refuse(kInvalidProblem, "{}: its values are {} {}; they must be {}", path, array.header.descr,
           shape_text(array.header.shape), wanted);
  }
  return array;
}

std::string npy_header_text(std::string_view descr, std::span<const std::int64_t> shape) {
  std::string sizes;
  for (std::int64_t size : shape) sizes += fmt::format("{}, ", size);
  if (shape.size() > 1) sizes.resize(sizes.size() - 2);
  if (shape.size() == 1) sizes.pop_back();
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 descr, sizes);
  const std::size_t before = kMagic.size() + 4;
  dict.append(63 - (before + dict.size()) % 64, ' ');
  dict += '\n';
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(dict.size() & 0xff),
           static_cast<char>(dict.size() >> 8)};
  return text + dict;
}

void write_npy(const std::string& path, std::string_view descr, std::span<const std::int64_t> shape,
               std::span<const std::byte> data) {
  const std::string header = npy_header_text(descr, shape);
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << header;
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  file.close();
  if (!file) refuse(kIo, "{}: cannot be written: {}", path, errno_text());
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace attnforge::cli
