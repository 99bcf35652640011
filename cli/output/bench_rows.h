// bench_rows.h - what a sweep measured, row by row: for people, for programs, and in files, CSV as
// the rows come, JSON at the end.
#pragma once

#include <string>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/measure.h"
#include "cli/output/json.h"
#include "cli/output/table.h"

namespace attnforge::cli {

/// One problem with one family.
struct BenchRow {
  Problem problem;
  std::string asked;  // the family; "": any
  BenchResult result;
  std::string config, provenance;
  std::string error;  // "" unless it failed
  ErrorCode code = ErrorCode::kInternal;

  bool ok() const { return error.empty(); }
  /// The family that ran; of a row that failed before one was chosen, the requested one.
  std::string family() const;
};

/// Where and when: the same in all rows of a sweep.
struct BenchOrigin {
  DeviceFacts device;
  std::string date;  // UTC, ISO 8601
};

/// TFLOP/s are null where the operations cannot be counted.
Json time_json(const BenchResult& result);

/// Bytes of device memory of a kernel that keeps a matrix of scores in fp32: in addition to q, k,
/// v, o and lse, batch * num_heads_q * seqlen_q * seqlen_kv * 4.
double quadratic_bytes(const Problem& problem);

/// For people: what decides, then the problem and the config or the first line of the error.
/// `full`: configs as their whole text.
Table readable_table(const std::vector<BenchRow>& rows, bool full = false);

/// Lines that say why rows have no TFLOP/s; "": all have some.
std::string uncounted_text(const std::vector<BenchRow>& rows);

/// A column for everything, numbers in full, "" where there is nothing. docs/CLI.md lists the
/// columns: add some, rename none.
Table full_table(const std::vector<BenchRow>& rows, const BenchOrigin& origin);

Json to_json(const std::vector<BenchRow>& rows, const BenchOrigin& origin, bool interrupted);

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
