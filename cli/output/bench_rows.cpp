#include "cli/output/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "attnforge/printable.h"
#include "attnforge/problem_words.h"
#include "attnforge/version.h"
#include "cli/output/config_words.h"

namespace attnforge::cli {
namespace {

/// "fp16", or "fp16/bf16/bf16/fp16" where q, k, v and o differ.
std::string dtype_text(const Problem& p) {
  const auto name = [](DType dtype) { return std::string(to_string(dtype)); };
  if (p.dtype_q == p.dtype_k && p.dtype_q == p.dtype_v && p.dtype_q == p.dtype_o)
    return name(p.dtype_q);
  return name(p.dtype_q) + "/" + name(p.dtype_k) + "/" + name(p.dtype_v) + "/" + name(p.dtype_o);
}

/// The share of the work of a head dim padded to the next power of two that is done on zeros.
double padding_waste(int head_dim) {
  return 1 - static_cast<double>(head_dim) / std::bit_ceil(static_cast<unsigned>(head_dim));
}

/// A column and what stands in it; measured ones are empty where the row failed.
struct Field {
  std::string_view name;
  bool measured;
  Json (*value)(const BenchRow&);  // null: what the problem has of the word of this name

  Json of(const BenchRow& row) const {
    if (value != nullptr) return value(row);
    return std::visit([](const auto& held) { return Json(held); },
                      value_of_word(row.problem, name));
  }
};

// The order of docs/CLI.md: first columns, then words of problems, and the rest.
constexpr Field kFirstFields[] = {
    {"status", false, [](const BenchRow& r) { return Json(r.ok() ? "ok" : to_string(r.code)); }},
    {"family", false, [](const BenchRow& r) { return Json(r.family()); }},
    {"asked", false, [](const BenchRow& r) { return Json(r.asked.empty() ? "any" : r.asked); }},
    {"dtype", false, [](const BenchRow& r) { return Json(dtype_text(r.problem)); }},
    {"layout", false, [](const BenchRow& r) { return Json(to_string(r.problem.layout)); }},
    {"batch", false, [](const BenchRow& r) { return Json(r.problem.batch); }},
    {"num_heads_q", false, [](const BenchRow& r) { return Json(r.problem.num_heads_q); }},
    {"num_heads_kv", false, [](const BenchRow& r) { return Json(r.problem.num_heads_kv); }},
    {"seqlen_q", false, [](const BenchRow& r) { return Json(r.problem.seqlen_q); }},
    {"seqlen_kv", false, [](const BenchRow& r) { return Json(r.problem.seqlen_kv); }},
    {"head_dim", false, [](const BenchRow& r) { return Json(r.problem.head_dim); }},
    {"head_dim_v", false, [](const BenchRow& r) { return Json(r.problem.head_dim_v); }},
    {"causal", false, [](const BenchRow& r) { return Json(r.problem.causal ? 1 : 0); }},
    {"lse", false, [](const BenchRow& r) { return Json(r.problem.lse ? 1 : 0); }},
};
constexpr Field kLastFields[] = {
    {"time_us", true, [](const BenchRow& r) { return Json(r.result.time_us); }},
    {"min_us", true, [](const BenchRow& r) { return Json(r.result.min_us); }},
    {"noise", true, [](const BenchRow& r) { return Json(r.result.noise); }},
    {"samples", true, [](const BenchRow& r) { return Json(r.result.samples); }},
    {"clock_mhz", true, [](const BenchRow& r) { return Json(r.result.clock_mhz); }},
    {"tflops_per_s", true, [](const BenchRow& r) { return tflops_json(r.result); }},
    {"flops_unknown", true, [](const BenchRow& r) { return Json(r.result.work_unknown); }},
    {"gbytes_per_s", true, [](const BenchRow& r) { return Json(r.result.gbytes_per_s); }},
    {"cache_tb_per_s", true, [](const BenchRow& r) { return Json(r.result.cache_tb_per_s); }},
    {"ns_per_token_head", true, [](const BenchRow& r) { return Json(r.result.ns_per_token_head); }},
    {"inputs_bytes", true, [](const BenchRow& r) { return Json(r.result.memory.inputs); }},
    {"outputs_bytes", true, [](const BenchRow& r) { return Json(r.result.memory.outputs); }},
    {"workspace_bytes", true, [](const BenchRow& r) { return Json(r.result.memory.workspace); }},
    {"peak_bytes", true, [](const BenchRow& r) { return Json(r.result.memory.peak); }},
    {"driver_bytes", true, [](const BenchRow& r) { return Json(r.result.memory.driver); }},
    {"quadratic_bytes", false, [](const BenchRow& r) { return Json(quadratic_bytes(r.problem)); }},
    {"padding_waste", false,
     [](const BenchRow& r) { return Json(padding_waste(r.problem.head_dim)); }},
    {"provenance", true, [](const BenchRow& r) { return Json(r.provenance); }},
    {"problem", false, [](const BenchRow& r) { return Json(to_string(r.problem)); }},
    {"config", false, [](const BenchRow& r) { return Json(r.config); }},
    {"error", false, [](const BenchRow& r) { return Json(r.error); }},
};

const std::vector<Field>& fields() {
  static const std::vector<Field> kFields = [] {
    std::vector<Field> list(std::begin(kFirstFields), std::end(kFirstFields));
    for (const ProblemWord& word : problem_words())
      if (word.has_column) list.push_back({word.name, false, nullptr});
    list.insert(list.end(), std::begin(kLastFields), std::end(kLastFields));
    return list;
  }();
  return kFields;
}

/// A value as text; a number as the shortest text that is the same number again.
std::string cell_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

}  // namespace

Json tflops_json(const BenchResult& result) {
  return result.work_unknown.empty() ? Json(result.tflops_per_s) : Json(nullptr);
}

std::string BenchRow::family() const {
  return config.empty() ? asked : config.substr(0, config.find(' '));
}

double quadratic_bytes(const Problem& p) {
  const double scores = static_cast<double>(p.batch) * static_cast<double>(p.num_heads_q) *
                        static_cast<double>(p.seqlen_q) * static_cast<double>(p.seqlen_kv);
  return minimum_bytes(p) + scores * sizeof(float);
}

Table readable_table(const std::vector<BenchRow>& rows, bool full) {
  const bool caches = std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) {
    return row.problem.seqlen_q < row.problem.seqlen_kv;
  });
  Table table{{{"time us", kRight}, {"noise", kRight}, {"TFLOP/s", kRight}, {"GB/s", kRight}}, {}};
  if (caches) table.columns.push_back({"cache TB/s", kRight});
  const std::size_t numbers = table.columns.size() + 2;
  for (const Column& column : {Column{"ns/token/head", kRight}, Column{"MiB", kRight},
                               Column{"provenance"}, Column{"problem"}, Column{"config or error"}})
    table.columns.push_back(column);
  for (const BenchRow& row : rows) {
    const BenchResult& r = row.result;
    if (!row.ok()) {
      std::vector<std::string> cells(numbers, "-");
      cells.insert(cells.end(), {"failed", to_string(row.problem),
                                 row.asked.empty() ? first_line(row.error)
                                                   : row.asked + ": " + first_line(row.error)});
      table.rows.push_back(std::move(cells));
      continue;
    }
    std::vector<std::string> cells = {
        fmt::format("{:.2f}", r.time_us), fmt::format("{:.1f}%", 100 * r.noise),
        r.work_unknown.empty() ? fmt::format("{:.1f}", r.tflops_per_s) : "-",
        fmt::format("{:.1f}", r.gbytes_per_s)};
    if (caches)
      cells.push_back(r.cache_tb_per_s > 0 ? fmt::format("{:.2f}", r.cache_tb_per_s) : "-");
    cells.insert(cells.end(),
                 {fmt::format("{:.3f}", r.ns_per_token_head),
                  fmt::format("{:.1f}", static_cast<double>(r.memory.peak) / (1 << 20)),
                  row.provenance, to_string(row.problem), config_text(row.config, full)});
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string uncounted_text(const std::vector<BenchRow>& rows) {
  std::vector<std::string> reasons;
  for (const BenchRow& row : rows) {
    const std::string& why = row.result.work_unknown;
    if (!why.empty() && std::ranges::find(reasons, why) == reasons.end()) reasons.push_back(why);
  }
  std::string text;
  for (const std::string& why : reasons) text += fmt::format("no TFLOP/s: {}\n", printable(why));
  return text;
}

Table full_table(const std::vector<BenchRow>& rows, const BenchOrigin& origin) {
  Table table;
  for (const Field& field : fields()) table.columns.push_back({std::string(field.name)});
  table.columns.push_back({"gpu"});
  table.columns.push_back({"date"});
  for (const BenchRow& row : rows) {
    std::vector<std::string> cells;
    for (const Field& field : fields())
      cells.push_back(field.measured && !row.ok() ? "" : cell_of(field.of(row)));
    cells.push_back(origin.device.name);
    cells.push_back(origin.date);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Json to_json(const std::vector<BenchRow>& rows, const BenchOrigin& origin, bool interrupted) {
  Json results = Json::array();
  for (const BenchRow& row : rows) {
    Json entry = Json::object();
    for (const Field& field : fields()) {
      if (field.name == "error" || (field.measured && !row.ok())) continue;
      entry[std::string(field.name)] = field.of(row);
    }
    if (!row.ok()) {
      entry.erase("config");
      entry["error"] = {{"code", to_string(row.code)}, {"message", row.error}};
    }
    results.push_back(std::move(entry));
  }
  return {{"attnforge", kVersion},
          {"device", to_json(origin.device)},
          {"date", origin.date},
          {"interrupted", interrupted},
          {"results", results}};
}

}  // namespace attnforge::cli
