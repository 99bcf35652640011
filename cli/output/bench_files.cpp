#include "cli/output/bench_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/files/read_text.h"

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

Table read_sweep(const std::string& path) {
  const std::string text = read_text(path, "sweep");
  Table table = parse_csv(text, path);
  // Tables of bench/peers.py say it once, in their first line: "# NVIDIA H200, driver 580, ...".
  const bool has_gpu = std::any_of(table.columns.begin(), table.columns.end(),
                                   [](const Column& column) { return column.name == "gpu"; });
  if (has_gpu || !text.starts_with("# ")) return table;
  const std::string gpu = text.substr(2, text.find_first_of(",\n", 2) - 2);
  table.columns.push_back({"gpu"});
  for (auto& row : table.rows) row.push_back(gpu);
  return table;
}

}  // namespace attnforge::cli
