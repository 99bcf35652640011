// npy.cpp - the format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "cli/files/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are copied between files and memory as they are");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t
    kMaxHeaderBytes = 1 << 16;  // ours need 100; a longer one is not an array of numbers

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", name, why));
}

/// Reads the Python dict literal of a header: strings, True, False, tuples of integers; nothing
/// else occurs in one.
class DictReader {
 public:
  DictReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader read() {
    NpyHeader header;
    std::optional<bool> fortran_order;
    bool has_descr = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        header.descr = string();
        has_descr = true;
      } else if (key == "fortran_order") {
        fortran_order = boolean();
      } else if (key == "shape") {
        header.shape = tuple();
        has_shape = true;
      } else {
        refuse(
            name_,
            fmt::format("its .npy header has the key \"{}\", which no version of the format knows",
                        key));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!has_descr || !has_shape || !fortran_order) {
      refuse(name_, "its .npy header lacks one of descr, fortran_order and shape");
    }
    if (*fortran_order && header.shape.size() > 1) {
      refuse(name_, "its values are in Fortran order; save numpy.ascontiguousarray(x) instead");
    }
    return header;
  }

 private:
  char peek() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n'))
      text_.remove_prefix(1);
    return text_.empty() ? '\0' : text_.front();
  }
  bool take(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad(fmt::format("'{}'", c));
  }
  [[noreturn]] void bad(const std::string& wanted) {
    refuse(name_, fmt::format("its .npy header is damaged: {} expected before \"{}\"", wanted,
                              text_.substr(0, 20)));
  }

  std::string string() {
    const char quote = peek();
    // A structured array's descr is a list.
    if (quote == '[') refuse(name_, "it is a structured array; save a plain array of numbers");
    if (quote != '\'' && quote != '"') bad("a string");
    const std::size_t end = text_.find(quote, 1);
    if (end == text_.npos) bad("the end of a string");
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }

  bool boolean() {
    peek();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(std::strlen(word));
      return value;
    }
    bad("True or False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!take(')')) {
      peek();
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
      if (error != std::errc()) bad("a size");
      if (value < 0) refuse(name_, fmt::format("its .npy header has the negative size {}", value));
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      take('L');  // Python 2 wrote long integers so
      values.push_back(value);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view text_;
  const std::string& name_;
};

/// Bytes a value, from the digits of descr. Throws for what has none.
std::size_t item_bytes(const NpyHeader& header, const std::string& name) {
  const std::string_view descr = header.descr;
  std::size_t bytes = 0;
  if (descr.size() >= 3) {
    const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), bytes);
    if (error == std::errc() && end == descr.data() + descr.size() && bytes > 0 && bytes <= 1024)
      return bytes;
  }
  refuse(name,
         fmt::format("its values are of type \"{}\"; save numbers, as in x.astype(numpy.float16)",
                     descr));
}

std::size_t data_bytes(const NpyHeader& header, const std::string& name) {
  std::size_t bytes = item_bytes(header, name);
  bool empty = false;
  for (std::int64_t size : header.shape) {
    empty = empty || size == 0;
    if (size == 0) continue;  // the product of the others must fit too: callers multiply them
    if (static_cast<std::size_t>(size) > (std::size_t{1} << 62) / bytes) {
      refuse(name,
             fmt::format("its shape {} is too large for any memory", shape_text(header.shape)));
    }
    bytes *= static_cast<std::size_t>(size);
  }
  return empty ? 0 : bytes;
}

}  // namespace

NpyHeader parse_npy_header(std::string_view start, const std::string& name) {
  if (!start.starts_with(kMagic))
    refuse(name, "it is not an .npy file; save one with numpy.save(path, x)");
  if (start.size() < 10) refuse(name, "it is cut short in its .npy header");
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(start[at]));
  };
  const std::size_t major = byte(6);
  if (major < 1 || major > 3) {
    refuse(name, fmt::format("it is of .npy format version {}.{}; versions 1 to 3 are read", major,
                             byte(7)));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t text_offset = 8 + length_bytes;
  if (start.size() < text_offset) refuse(name, "it is cut short in its .npy header");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  if (length > kMaxHeaderBytes)
    refuse(name, fmt::format("its .npy header claims {} bytes; it is damaged", length));
  if (start.size() < text_offset + length) refuse(name, "it is cut short in its .npy header");
  NpyHeader header = DictReader(start.substr(text_offset, length), name).read();
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
    refuse(name, "its values are of type uint16; if they are the bits of bf16, say --bf16");
  if (descr == ">f2" || descr == ">f4" || descr == ">u2") {
    refuse(name,
           fmt::format(
               "its values are big-endian (\"{}\"); save x.astype(x.dtype.newbyteorder(\"<\"))",
               descr));
  }
  refuse(name, fmt::format("its values are of type \"{}\"; float16 (\"<f2\"), float32 (\"<f4\") "
                           "and bfloat16 (\"<V2\", or "
                           "\"<u2\" with --bf16) are read",
                           descr));
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
    refuse(path,
           fmt::format("cannot be read: {}", errno ? std::strerror(errno) : "not a regular file"));
  }
  NpyArray array{parse_npy_header(start, path), {}};
  const std::size_t wanted = data_bytes(array.header, path);

  file.clear();
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::size_t>(std::max<std::streamoff>(file.tellg(), 0));
  const std::size_t there = size - std::min(size, array.header.data_offset);
  if (there != wanted) {
    refuse(path,
           fmt::format(
               "its shape {} of \"{}\" needs {} bytes of values, but the file has {}; it is {}",
               shape_text(array.header.shape), array.header.descr, wanted, there,
               there < wanted ? "cut short" : "damaged or holds more than one array"));
  }
  array.data.resize(wanted);
  file.seekg(static_cast<std::streamoff>(array.header.data_offset));
  file.read(reinterpret_cast<char*>(array.data.data()), static_cast<std::streamsize>(wanted));
  if (!file) refuse(path, "its values cannot be read; did the file change meanwhile?");
  return array;
}

std::vector<float> read_floats(const std::string& path, std::span<const std::int64_t> shape,
                               const std::string& wanted) {
  const NpyArray array = read_npy(path);
  const bool fits = std::ranges::equal(array.header.shape, shape, [](auto has, auto size) {
    return size == kAnySize || has == size;
  });
  if (!fits || array.header.descr != "<f4") {
    throw Error(ErrorCode::kInvalidProblem,
                fmt::format("{}: its values are {} {}; they must be float32 {}", path,
                            array.header.descr, shape_text(array.header.shape), wanted));
  }
  std::vector<float> values(array.data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
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
  if (!file)
    refuse(path,
           fmt::format("cannot be written: {}", errno ? std::strerror(errno) : "unknown reason"));
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace attnforge::cli
