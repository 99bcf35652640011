// points.cpp - the rows of a sweep by the names of their columns.
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "cli/plot/sweep_figures.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

/// The cells of a row by the names of their columns.
class Cells {
 public:
  Cells(const Table& table, const std::vector<std::string>& row) : table_(table), row_(row) {}

  bool has(const std::string& column) const { return place(column) < row_.size(); }
  std::string text_if_any(const std::string& column) const {
    return has(column) ? row_[place(column)] : "";
  }
  std::string text(const std::string& column) const {
    if (has(column)) return row_[place(column)];
    refuse(kInvalidArgument,
           "the rows have no column {}; they must be those of bench --csv or --out", column);
  }
  double number(const std::string& column) const { return number_of(text(column)); }
  double number_if_any(const std::string& column) const { return number_of(text_if_any(column)); }

 private:
  static double number_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }
  std::size_t place(const std::string& column) const {
    const auto found = std::ranges::find(table_.columns, column, &Column::name);
    return static_cast<std::size_t>(found - table_.columns.begin());
  }

  const Table& table_;
  const std::vector<std::string>& row_;
};

/// From a problem's text: its group, without the words that lines and axes stand for, and with one
/// word for heads; and its block mask, and what it is without that.
void read_problem(const std::string& problem, SweepPoint& point) {
  const auto add = [](const std::string& word, std::string& text) {
    text += (text.empty() ? "" : " ") + word;
  };
  std::istringstream stream(problem);
  std::string heads;
  for (std::string word; stream >> word;) {
    const std::string name = word.substr(0, word.find('='));
    const std::string value = word.substr(std::min(word.size(), name.size() + 1));
    if (name == "num_heads_q") {
      heads = value;
    } else if (name == "num_heads_kv") {
      add("num_heads=" + heads + (value == heads ? "" : ":" + value), point.group);
    } else if (name != "batch" && !name.starts_with("seqlen_") && !name.starts_with("head_dim")) {
      add(word, point.group);
    }
    if (name == "blocks") {
      const std::string queries = value.substr(0, value.find(':'));
      point.blocks = value == queries + ":" + queries ? queries : value;
    } else if (name == "density") {
      point.density = std::strtod(value.c_str(), nullptr);
    } else if (!name.starts_with("mask_")) {
      add(word, point.unmasked);
    }
  }
}

/// Of bench/peers.py, whose lines are attnforge, tuned, and its peers.
void read_peer(const Cells& cells, SweepPoint& point) {
  const auto pair = [&](const char* q, const char* kv) {
    const std::string of_q = cells.text(q), of_kv = cells.text(kv);
    return of_q == of_kv ? of_q : of_q + ":" + of_kv;
  };
  point.family = cells.text("impl");
  if (point.family == "attnforge") point.family += ", tuned";
  point.group = fmt::format("fwd {} num_heads={}{}", cells.text("dtype"),
                            pair("num_heads_q", "num_heads_kv"),
                            cells.text("causal") == "1" ? " causal" : "");
  // A line has one pair of head dims.
  if (const std::string dims = pair("head_dim", "head_dim_v"); dims.find(':') != dims.npos)
    point.group += " head_dim=" + dims;
  point.gpu = cells.text_if_any("gpu");
  point.time_us = 1000 * cells.number("ms");
  point.tflops_per_s = cells.number("tflops");
  point.noise = cells.number_if_any("spread");
}

void read_own(const Cells& cells, SweepPoint& point) {
  read_problem(cells.text("problem"), point);
  point.family = cells.text("asked") == "any" ? "best family" : cells.text("family");
  point.gpu = cells.text("gpu");
  point.date = cells.text("date").substr(0, 10);
  point.provenance = cells.text_if_any("provenance");
  point.noise = cells.number_if_any("noise");
  point.gbytes_per_s = cells.number_if_any("gbytes_per_s");
  point.time_us = cells.number("time_us");
  point.tflops_per_s = cells.number("tflops_per_s");
  point.peak_bytes = cells.number("peak_bytes");
  point.quadratic_bytes = cells.number("quadratic_bytes");
}

}  // namespace

std::vector<SweepPoint> sweep_points(const Table& table) {
  std::vector<SweepPoint> points;
  for (const auto& row : table.rows) {
    const Cells cells(table, row);
    const bool peer = cells.has("impl");
    if (peer ? cells.text("ms").empty() : cells.text("status") != "ok") continue;
    SweepPoint& point = points.emplace_back();
    (peer ? read_peer : read_own)(cells, point);
    point.dtype = dtype_named(cells.text_if_any("dtype")).value_or(DType::kBf16);
    point.batch = static_cast<int>(cells.number("batch"));
    point.head_dim = static_cast<int>(cells.number("head_dim"));
    point.seqlen = cells.number("seqlen_q");
    point.seqlen_kv = cells.number(cells.has("seqlen_kv") ? "seqlen_kv" : "seqlen_q");
  }
  return points;
}

}  // namespace attnforge::cli
