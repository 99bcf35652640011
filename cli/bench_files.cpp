#include "cli/bench_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/read_text.h"

namespace attnforge::cli {
namespace {

void write(const std::string& path, const std::string& text, std::ios::openmode mode) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  file.close();
  if (!file) {
    throw Error(ErrorCode::kIo, fmt::format("{} cannot be written: {}", path,
                                            errno ? std::strerror(errno) : "unknown reason"));
  }
}

}  // namespace

BenchFiles::BenchFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.ends_with(".csv")) {
      csv_.push_back(path);
    } else if (path.ends_with(".json")) {
      json_.push_back(path);
    } else {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--out {} must end in .csv or .json, which says what is written", path));
    }
  }
  for (const std::string& path : csv_) write(path, csv(full_table({}, {})), std::ios::trunc);
  for (const std::string& path : json_) write(path, "", std::ios::trunc);
}

void BenchFiles::add(const BenchRow& row, const BenchOrigin& origin) {
  for (const std::string& path : csv_)
    write(path, csv_rows(full_table({row}, origin)), std::ios::app);
}

void BenchFiles::finish(const std::vector<BenchRow>& rows, const BenchOrigin& origin,
                        bool interrupted) const {
  for (const std::string& path : json_)
    write(path, json_text(to_json(rows, origin, interrupted)) + "\n", std::ios::trunc);
}

Table read_sweep(const std::string& path) { return parse_csv(read_text(path, "sweep"), path); }

}  // namespace attnforge::cli
