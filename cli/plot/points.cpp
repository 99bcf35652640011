#include "cli/plot/points.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

/// Cells of a row by the names of the columns.
class Cells {
 public:
  explicit Cells(const Table& table) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) place_[table.columns[i].name] = i;
  }
  const std::string& text(const std::vector<std::string>& row, const std::string& column) const {
    const auto found = place_.find(column);
    if (found == place_.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the rows have no column {}; they must be those of bench --csv or "
                              "--out",
                              column));
    }
    return row[found->second];
  }
  bool has(const std::string& column) const { return place_.count(column) > 0; }
  std::string text_if_any(const std::vector<std::string>& row, const std::string& column) const {
    return place_.count(column) ? text(row, column) : "";
  }
  double number(const std::vector<std::string>& row, const std::string& column) const {
    return std::strtod(text(row, column).c_str(), nullptr);
  }

 private:
  std::map<std::string, std::size_t> place_;
};

/// A problem's text without the words that lines and axes stand for, and with one word for heads of
/// which there are as many for queries as for keys.
std::string group_of(const std::string& problem) {
  std::istringstream stream(problem);
  std::string group, heads;
  for (std::string word; stream >> word;) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "seqlen_q" || name == "seqlen_kv" || name == "batch" || name == "head_dim" ||
        name == "head_dim_v")
      continue;
    const std::string value = word.substr(std::min(word.size(), name.size() + 1));
    if (name == "num_heads_q") heads = value;
    if (name == "num_heads_q" || name == "num_heads_kv")
      word = name == "num_heads_q" ? ""
                                   : "num_heads=" + heads + (value == heads ? "" : ":" + value);
    if (!word.empty()) group += (group.empty() ? "" : " ") + word;
  }
  return group;
}

/// Sets blocks, density and unmasked.
void read_block_mask(const std::string& problem, SweepPoint& point) {
  std::istringstream stream(problem);
  for (std::string word; stream >> word;) {
    const std::size_t equals = std::min(word.size(), word.find('='));
    const std::string name = word.substr(0, equals),
                      value = word.substr(std::min(word.size(), equals + 1));
    if (name == "blocks") {
      const std::string queries = value.substr(0, value.find(':'));
      point.blocks = value == queries + ":" + queries ? queries : value;
    } else if (name == "density") {
      point.density = std::strtod(value.c_str(), nullptr);
    } else if (!name.starts_with("mask_")) {
      point.unmasked += (point.unmasked.empty() ? "" : " ") + word;
    }
  }
}

DType dtype_of(const std::string& text) { return dtype_named(text).value_or(DType::kBf16); }

/// Points of the rows of bench/peers.py, whose lines are attnforge, tuned, and its peers.
std::vector<SweepPoint> peer_points_of(const Table& table) {
  const Cells cells(table);
  std::vector<SweepPoint> points;
  for (const auto& row : table.rows) {
    if (cells.text(row, "ms").empty()) continue;
    const auto pair = [&](const char* q, const char* kv) {
      const std::string of_q = cells.text(row, q), of_kv = cells.text(row, kv);
      return of_q == of_kv ? of_q : of_q + ":" + of_kv;
    };
    SweepPoint point;
    point.family = cells.text(row, "impl");
    if (point.family == "attnforge") point.family += ", tuned";
    point.group = fmt::format("fwd {} num_heads={}{}", cells.text(row, "dtype"),
                              pair("num_heads_q", "num_heads_kv"),
                              cells.text(row, "causal") == "1" ? " causal" : "");
    // A line has one pair of head dims.
    if (const std::string dims = pair("head_dim", "head_dim_v"); dims.find(':') != dims.npos)
      point.group += " head_dim=" + dims;
    point.gpu = cells.text_if_any(row, "gpu");
    point.dtype = dtype_of(cells.text(row, "dtype"));
    point.batch = static_cast<int>(cells.number(row, "batch"));
    point.head_dim = static_cast<int>(cells.number(row, "head_dim"));
    point.seqlen = point.seqlen_kv = cells.number(row, "seqlen_q");
    if (cells.has("seqlen_kv")) point.seqlen_kv = cells.number(row, "seqlen_kv");
    point.time_us = 1000 * cells.number(row, "ms");
    point.tflops_per_s = cells.number(row, "tflops");
    point.noise = std::strtod(cells.text_if_any(row, "spread").c_str(), nullptr);
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace

std::vector<SweepPoint> sweep_points(const Table& table) {
  const Cells cells(table);
  if (cells.has("impl")) return peer_points_of(table);
  std::vector<SweepPoint> points;
  for (const auto& row : table.rows) {
    if (cells.text(row, "status") != "ok") continue;
    SweepPoint point;
    point.group = group_of(cells.text(row, "problem"));
    read_block_mask(cells.text(row, "problem"), point);
    point.family = cells.text(row, "asked") == "any" ? "best family" : cells.text(row, "family");
    point.gpu = cells.text(row, "gpu");
    point.date = cells.text(row, "date").substr(0, 10);
    point.provenance = cells.text_if_any(row, "provenance");
    point.dtype = dtype_of(cells.text_if_any(row, "dtype"));
    point.noise = std::strtod(cells.text_if_any(row, "noise").c_str(), nullptr);
    point.gbytes_per_s = std::strtod(cells.text_if_any(row, "gbytes_per_s").c_str(), nullptr);
    point.batch = static_cast<int>(cells.number(row, "batch"));
    point.head_dim = static_cast<int>(cells.number(row, "head_dim"));
    point.seqlen = point.seqlen_kv = cells.number(row, "seqlen_q");
    if (cells.has("seqlen_kv")) point.seqlen_kv = cells.number(row, "seqlen_kv");
    point.time_us = cells.number(row, "time_us");
    point.tflops_per_s = cells.number(row, "tflops_per_s");
    point.peak_bytes = cells.number(row, "peak_bytes");
    point.quadratic_bytes = cells.number(row, "quadratic_bytes");
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace attnforge::cli
