// bench_files.h - a sweep in files: CSV as the rows come, JSON at the end.
#pragma once

#include <string>
#include <vector>

#include "cli/output/bench_rows.h"

namespace attnforge::cli {

/// The files that --out names. A CSV file has every row that was measured, also when the program is
/// killed.
class BenchFiles {
 public:
  /// Makes the files anew. Throws Error(kInvalidArgument) for a name that ends in neither .csv nor
  /// .json, Error(kIo) for one that cannot be written.
  explicit BenchFiles(const std::vector<std::string>& paths);

  /// Adds one row to the CSV files. Throws Error(kIo).
  void add(const BenchRow& row, const BenchOrigin& origin);
  /// Writes the JSON files. Throws Error(kIo).
  void finish(const std::vector<BenchRow>& rows, const BenchOrigin& origin, bool interrupted) const;

 private:
  std::vector<std::string> csv_, json_;
};

/// The rows of an earlier sweep. Throws Error(kIo), Error(kInvalidArgument).
Table read_sweep(const std::string& path);

}  // namespace attnforge::cli
