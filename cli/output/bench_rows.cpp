#include "cli/output/bench_rows.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "attnforge/printable.h"
#include "attnforge/problem_words.h"
#include "attnforge/version.h"
#include "cli/files/text_files.h"
#include "cli/refuse.h"

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

Json value_of(const Problem& problem, std::string_view word) {
  return std::visit([](const auto& held) { return Json(held); }, value_of_word(problem, word));
}

/// Everything of a row, but its error, by the names of the columns, in the order of docs/CLI.md:
/// first columns, then words of problems, and the rest.
Json fields_of(const BenchRow& row) {
  const Problem& p = row.problem;
  Json json{{"status", row.ok() ? "ok" : to_string(row.code)},
            {"family", row.family()},
            {"asked", row.asked.empty() ? "any" : row.asked},
            {"dtype", dtype_text(p)}};
  for (const char* word : {"layout", "batch", "num_heads_q", "num_heads_kv", "seqlen_q",
                           "seqlen_kv", "head_dim", "head_dim_v", "causal", "lse"})
    json[word] = value_of(p, word);
  for (const ProblemWord& word : problem_words())
    if (word.has_column) json[std::string(word.name)] = value_of(p, word.name);
  json.update(time_json(row.result));
  const MemoryUse& memory = row.result.memory;
  json.update({{"inputs_bytes", memory.inputs},
               {"outputs_bytes", memory.outputs},
               {"workspace_bytes", memory.workspace},
               {"peak_bytes", memory.peak},
               {"driver_bytes", memory.driver},
               {"quadratic_bytes", quadratic_bytes(p)},
               {"padding_waste", padding_waste(p.head_dim)},
               {"provenance", row.provenance},
               {"problem", to_string(p)},
               {"config", row.config}});
  if (row.ok()) return json;
  // Nothing was measured.
  const Json times = time_json(row.result);
  for (const auto& [key, value] : times.items()) json.erase(key);
  for (const char* key : {"inputs_bytes", "outputs_bytes", "workspace_bytes", "peak_bytes",
                          "driver_bytes", "provenance"})
    json.erase(key);
  return json;
}

/// The value of a key as text; a number as the shortest text that is the same number again.
std::string cell_of(const Json& fields, const std::string& key) {
  const Json value = fields.value(key, Json());
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

}  // namespace

Json time_json(const BenchResult& result) {
  Json json = ATTNFORGE_JSON(result, time_us, min_us, noise, samples, clock_mhz, tflops_per_s);
  if (!result.work_unknown.empty()) json["tflops_per_s"] = nullptr;
  json["flops_unknown"] = result.work_unknown;
  json.update(ATTNFORGE_JSON(result, gbytes_per_s, cache_tb_per_s, ns_per_token_head));
  return json;
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
  Table table = table_of({">time us", ">noise", ">TFLOP/s", ">GB/s", ">cache TB/s",
                          ">ns/token/head", ">MiB", "provenance", "problem", "config or error"});
  constexpr std::size_t kCache = 4, kNumbers = 7;
  for (const BenchRow& row : rows) {
    const BenchResult& r = row.result;
    if (row.ok()) {
      table.rows.push_back({fmt::format("{:.2f}", r.time_us), fmt::format("{:.1f}%", 100 * r.noise),
                            r.work_unknown.empty() ? fmt::format("{:.1f}", r.tflops_per_s) : "-",
                            fmt::format("{:.1f}", r.gbytes_per_s),
                            r.cache_tb_per_s > 0 ? fmt::format("{:.2f}", r.cache_tb_per_s) : "-",
                            fmt::format("{:.3f}", r.ns_per_token_head),
                            fmt::format("{:.1f}", static_cast<double>(r.memory.peak) / (1 << 20)),
                            row.provenance, to_string(row.problem), config_text(row.config, full)});
    } else {
      const std::string asked = row.asked.empty() ? "" : row.asked + ": ";
      std::vector<std::string>& cells = table.rows.emplace_back(kNumbers, "-");
      cells.insert(cells.end(), {"failed", to_string(row.problem), asked + first_line(row.error)});
    }
  }
  if (!caches) {
    table.columns.erase(table.columns.begin() + kCache);
    for (auto& cells : table.rows) cells.erase(cells.begin() + kCache);
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
  const Json names = fields_of({});
  for (const auto& [key, value] : names.items()) table.columns.push_back({key});
  for (const BenchRow& row : rows) {
    const Json fields = fields_of(row);
    std::vector<std::string>& cells = table.rows.emplace_back();
    for (const Column& column : table.columns) cells.push_back(cell_of(fields, column.name));
    cells.insert(cells.end(), {row.error, origin.device.name, origin.date});
  }
  for (const char* more : {"error", "gpu", "date"}) table.columns.push_back({more});
  return table;
}

Json to_json(const std::vector<BenchRow>& rows, const BenchOrigin& origin, bool interrupted) {
  Json results = Json::array();
  for (const BenchRow& row : rows) {
    Json& entry = results.emplace_back(fields_of(row));
    if (row.ok()) continue;
    entry.erase("config");
    entry["error"] = {{"code", to_string(row.code)}, {"message", row.error}};
  }
  return {{"attnforge", kVersion},
          {"device", to_json(origin.device)},
          {"date", origin.date},
          {"interrupted", interrupted},
          {"results", results}};
}

BenchFiles::BenchFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.ends_with(".csv")) {
      csv_.push_back(path);
    } else if (path.ends_with(".json")) {
      json_.push_back(path);
    } else {
      refuse(kInvalidArgument, "--out {} must end in .csv or .json, which says what is written",
             path);
    }
  }
  for (const std::string& path : csv_) write_text(path, csv(full_table({}, {})));
  for (const std::string& path : json_) write_text(path, "");
}

void BenchFiles::add(const BenchRow& row, const BenchOrigin& origin) {
  for (const std::string& path : csv_) append_text(path, csv_rows(full_table({row}, origin)));
}

void BenchFiles::finish(const std::vector<BenchRow>& rows, const BenchOrigin& origin,
                        bool interrupted) const {
  for (const std::string& path : json_)
    write_text(path, json_text(to_json(rows, origin, interrupted)) + "\n");
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
