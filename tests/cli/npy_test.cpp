#include "cli/files/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>

#include "attnforge/error.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;

/// A file's bytes: version `major`, `dict` as it is, then `data`.
std::string file_text(int major, const std::string& dict, const std::string& data = "") {
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(major), '\0'};
  const auto size = dict.size();
  text += {static_cast<char>(size & 0xff), static_cast<char>(size >> 8 & 0xff)};
  if (major > 1)
    text += {static_cast<char>(size >> 16 & 0xff), static_cast<char>(size >> 24 & 0xff)};
  return text + dict + data;
}

std::string error_of(const std::string& file) {
  try {
    parse_npy_header(file, "x.npy");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    return error.what();
  }
  return "no error";
}

TEST(NpyHeader, IsReadAsNumPyWritesIt) {
  // The first 128 bytes of numpy.save of a float16 array of shape (2, 3, 4, 8).
  const std::string dict = "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3, 4, 8), }";
  const NpyHeader header = parse_npy_header(
      file_text(1, dict + std::string(117 - dict.size(), ' ') + "\n"), "x.npy");
  EXPECT_EQ(header.descr, "<f2");
  EXPECT_EQ(header.shape, (std::vector<std::int64_t>{2, 3, 4, 8}));
  EXPECT_EQ(header.data_offset, 128u);
}

TEST(NpyHeader, AllVersionsAndWaysToWriteTheDict) {
  for (int major : {1, 2, 3}) {
    for (const char* dict : {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }\n",
                             "{\"shape\":(5L,),\"fortran_order\":False,\"descr\":\"<f4\"}"}) {
      const NpyHeader header = parse_npy_header(file_text(major, dict), "x.npy");
      EXPECT_EQ(header.descr, "<f4");
      EXPECT_EQ(header.shape, std::vector<std::int64_t>{5});
    }
  }
  EXPECT_TRUE(
      parse_npy_header(file_text(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}"), "x")
          .shape.empty());
}

TEST(NpyHeader, SaysWhatIsWrong) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (5,)}";
  EXPECT_THAT(error_of(""), HasSubstr("not an .npy file"));
  EXPECT_THAT(error_of("PK\x03\x04 an .npz file is a zip"),
              HasSubstr("x.npy: it is not an .npy file"));
  EXPECT_THAT(error_of("\x93NUMPY"), HasSubstr("cut short"));
  EXPECT_THAT(error_of(file_text(1, good).substr(0, 30)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(file_text(2, good).substr(0, 11)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(file_text(4, good)), HasSubstr("version 4.0"));
  EXPECT_THAT(error_of(file_text(2, std::string(1 << 20, ' '))), HasSubstr("claims 1048576 bytes"));
  EXPECT_THAT(error_of(file_text(1, "{'descr': '<f4', 'fortran_order': False}")),
              HasSubstr("lacks one of"));
  EXPECT_THAT(error_of(file_text(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (5, 2)}")),
              HasSubstr("ascontiguousarray"));
  EXPECT_THAT(error_of(file_text(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-5,)}")),
              HasSubstr("-5"));
  EXPECT_THAT(error_of(file_text(
                  1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}")),
              HasSubstr("damaged"));
  EXPECT_THAT(error_of(file_text(1, "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (5,)}")),
              HasSubstr("True or False"));
  EXPECT_THAT(
      error_of(file_text(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5,)}")),
      HasSubstr("structured"));
  EXPECT_THAT(error_of(file_text(
                  1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), 'more': 'x'}")),
              HasSubstr("\"more\""));
  EXPECT_THAT(error_of(file_text(1, "{'descr': '<f4")), HasSubstr("damaged"));
  EXPECT_THAT(error_of(file_text(1, "not a dict")), HasSubstr("damaged"));
}

TEST(NpyHeader, NoBytesCrashIt) {
  rc::check("any dict text is a header or an error", [](const std::string& noise, bool whole) {
    const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (5,)}";
    const std::size_t at = noise.empty() ? 0 : static_cast<unsigned char>(noise[0]) % good.size();
    const std::string dict = whole ? noise : good.substr(0, at) + noise + good.substr(at);
    try {
      parse_npy_header(file_text(1, dict), "x");
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::kIo);
    }
  });
}

TEST(NpyDtype, KnownTypes) {
  const auto dtype = [](const char* descr, bool uint16_is_bf16 = false) {
    return npy_dtype({descr, {1}, 0}, uint16_is_bf16, "x.npy");
  };
  EXPECT_EQ(dtype("<f2"), DType::kFp16);
  EXPECT_EQ(dtype("<f4"), DType::kFp32);
  EXPECT_EQ(dtype("<V2"), DType::kBf16);
  EXPECT_EQ(dtype("|V2"), DType::kBf16);
  EXPECT_EQ(dtype("<u2", true), DType::kBf16);
  EXPECT_EQ(dtype("|i1"), DType::kInt8);
  EXPECT_EQ(dtype("|u1"), DType::kInt4);
  EXPECT_EQ(dtype("|V1"), DType::kE4m3);
  EXPECT_EQ(dtype("<f1"), DType::kE5m2);
}

TEST(NpyDtype, OthersAreRefusedWithAdvice) {
  const auto error = [](const char* descr) -> std::string {
    try {
      npy_dtype({descr, {1}, 0}, false, "x.npy");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("<u2"), HasSubstr("--bf16"));
  EXPECT_THAT(error(">f2"), HasSubstr("big-endian"));
  EXPECT_THAT(error("<f8"), HasSubstr("\"<f8\""));
  EXPECT_THAT(error("|O"), HasSubstr("\"|O\""));
}

std::vector<std::byte> bytes(std::size_t count) {
  std::vector<std::byte> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<std::byte>(i * 7 + 1);
  return result;
}

TEST(NpyFile, RoundTrip) {
  const TemporaryFolder folder;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{1, 3, 2, 8}, {48}, {0, 5, 2, 8}, {100000, 1, 1}, {}}) {
    std::size_t count = 2;
    for (std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    const std::vector<std::byte> data = bytes(count);
    const std::string path = folder.file("x.npy");
    write_npy(path, "<f2", shape, data);
    const NpyArray array = read_npy(path);
    EXPECT_EQ(array.header.descr, "<f2");
    EXPECT_EQ(array.header.shape, shape);
    EXPECT_EQ(array.header.data_offset % 64, 0u);
    EXPECT_EQ(array.data, data);
  }
}

TEST(NpyFile, HeaderTextIsWhatNumPyWrites) {
  const std::int64_t one[] = {5};
  const std::int64_t two[] = {2, 3};
  EXPECT_THAT(npy_header_text("<f4", one),
              HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }"));
  EXPECT_THAT(npy_header_text("<f4", two),
              HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"));
  EXPECT_THAT(npy_header_text("<f4", {}), HasSubstr("'shape': (), }"));
  EXPECT_EQ(npy_header_text("<f4", two).back(), '\n');
}

std::string read_error(const std::string& path) {
  try {
    read_npy(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(NpyFile, WrongSizesAreRefused) {
  const TemporaryFolder folder;
  const std::string dict = "{'descr': '<f2', 'fortran_order': False, 'shape': (4, 2)}";
  EXPECT_THAT(read_error(folder.write("short.npy", file_text(1, dict, std::string(15, 'x')))),
              HasSubstr("shape [4, 2] of \"<f2\" needs 16 bytes of values, but the file has 15; it "
                        "is cut short"));
  EXPECT_THAT(read_error(folder.write("long.npy", file_text(1, dict, std::string(17, 'x')))),
              HasSubstr("more than one array"));
  const std::string huge =
      "{'descr': '<f2', 'fortran_order': False, 'shape': (4611686018427387904, "
      "4611686018427387904)}";
  EXPECT_THAT(read_error(folder.write("huge.npy", file_text(1, huge))), HasSubstr("too large"));
  const std::string
      empty = "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4)}";
  EXPECT_THAT(read_error(folder.write("empty.npy", file_text(1, empty))), HasSubstr("too large"))
      << "callers multiply extents";
  const std::string strange = "{'descr': '<f', 'fortran_order': False, 'shape': (4,)}";
  EXPECT_THAT(read_error(folder.write("strange.npy", file_text(1, strange))),
              HasSubstr("type \"<f\""));
  EXPECT_THAT(read_error(folder.file("missing.npy")),
              HasSubstr("missing.npy: cannot be read: No such file"));
  EXPECT_THAT(read_error(folder.file("")), HasSubstr("cannot be read"));
}

TEST(NpyFile, WriteErrorsNameTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("no/such/folder/o.npy");
  try {
    write_npy(path, "<f2", {}, bytes(2));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path + ": cannot be written: No such file"));
  }
}

}  // namespace
}  // namespace attnforge::cli
