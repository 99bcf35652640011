// npy_file.cpp - any bytes as an .npy file of q, k and v.
#include <filesystem>
#include <fstream>

#include "cli/files/npy.h"
#include "cli/parts/tensors.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {
namespace {

std::string npy(std::string_view descr, std::vector<std::int64_t> shape, std::size_t bytes) {
  return cli::npy_header_text(descr, shape) + std::string(bytes, '\x3c');
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string bytes = text_of(data, size);
  cli::NpyHeader header;
  const bool header_ok = accepts([&] { header = cli::parse_npy_header(bytes, "q.npy"); });
  if (header_ok) {
    require(header.data_offset <= bytes.size(), "values begin after the end");
    for (const std::int64_t extent : header.shape) require(extent >= 0, "a negative size");
    const cli::NamedHeader file{"q.npy", header};
    for (const char* words : {"causal", "layout=bhsd", "fp16 head_dim=64"}) {
      accepts([&] {
        const Problem problem = cli::problem_of_files({file, file, file, true}, {words});
        require(cli::output_shape(problem).size() == 4, "the output's shape");
      });
    }
  }
  static const ScratchFolder folder;
  const std::string path = folder.path("q.npy");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  cli::NpyArray array;
  if (!accepts([&] { array = cli::read_npy(path); })) return 0;
  require(header_ok && array.data.size() == bytes.size() - header.data_offset,
          "values of another length");
  accepts([&] {
    const DType dtype = cli::npy_dtype(array.header, true, path);
    const std::size_t values = array.data.size() / static_cast<std::size_t>(bytes_of(dtype, 1));
    require(cli::converted(std::move(array), dtype, DType::kFp32).size() == 4 * values,
            "a conversion of another length");
  });
  // What is written again is read again.
  require(
      array.header.shape.size() > 64 || header.descr.size() > 64 ||
          header.descr.find_first_of("'\\") != std::string::npos ||
          cli::parse_npy_header(cli::npy_header_text(header.descr, header.shape), "again").shape ==
              header.shape,
      "another shape is read back");
  return 1;
}

std::vector<std::string> corpus() {
  std::string version2 = npy("<f4", {1, 2, 1, 8}, 64);
  version2.replace(6, 4, std::string("\2\0\x76\0\0\0", 6));
  return {npy("<f2", {1, 2, 1, 8}, 32),
          npy("<V2", {1, 1, 2, 8}, 32),
          npy("<u2", {2, 8}, 32),
          npy("<f4", {1, 2, 1, 8}, 64),
          npy("|V2", {}, 2),
          npy("<f2", {0, 8}, 0),
          npy(">f2", {3}, 6),
          version2};
}

std::vector<std::string> words() {
  return {"'descr'",
          "'fortran_order'",
          "'shape'",
          "True",
          "False",
          "{",
          "}",
          "(",
          ")",
          ",",
          ":",
          "'<f2'",
          "\"<f4\"",
          "[('a', '<f2')]",
          "1L",
          "\x93NUMPY",
          std::string("\1\0", 2),
          std::string("\3\0", 2),
          "1152921504606846976",
          "'\x1b[2J'"};
}

}  // namespace attnforge::fuzz
