#include "cli/output/table.h"

#include <algorithm>

#include "attnforge/inspect.h"
#include "attnforge/printable.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

std::vector<std::string> column_names(const Table& table) {
  std::vector<std::string> cells;
  for (const Column& column : table.columns) cells.push_back(column.name);
  return cells;
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == cell.npos) return cell;
  std::string text = "\"";
  for (char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) text += (i > 0 ? "," : "") + csv_cell(cells[i]);
  return text + "\n";
}

/// Takes one record, which may span lines where a cell is quoted, off the front of `text`.
std::vector<std::string> take_csv_record(std::string_view& text, int& line) {
  std::vector<std::string> cells(1);
  bool in_quotes = false;
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (in_quotes) {
      if (c != '"') {
        cells.back() += c;
      } else if (at + 1 < text.size() && text[at + 1] == '"') {
        cells.back() += text[++at];  // "" is a quote
      } else {
        in_quotes = false;
      }
    } else if (c == '"') {
      in_quotes = true;
    } else if (c == ',') {
      cells.emplace_back();
    } else if (c == '\n') {
      break;
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  text.remove_prefix(std::min(at + 1, text.size()));
  return cells;
}

}  // namespace

Table table_of(std::initializer_list<std::string> names) {
  Table table;
  for (const std::string& name : names) {
    const bool right = name.starts_with('>');
    table.columns.push_back(
        {name.substr(right ? 1 : 0), right ? Column::Align::kRight : Column::Align::kLeft});
  }
  return table;
}

std::string aligned(const Table& table, const std::string& indent) {
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(column.name.size());
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : table.rows) {
    ATTNFORGE_ASSERT(row.size() == widths.size(), "a table's row has a cell for each column");
    std::vector<std::string>& shown = rows.emplace_back();
    for (const std::string& cell : row) shown.push_back(printable(cell));
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], shown[i].size());
  }
  std::string text;
  const auto put = [&](const std::vector<std::string>& cells) {
    std::string line = indent;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string blanks(widths[i] - cells[i].size(), ' ');
      if (i > 0) line += "  ";
      line += table.columns[i].align == Column::Align::kRight ? blanks + cells[i]
                                                              : cells[i] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  put(column_names(table));
  for (const auto& row : rows) put(row);
  return text;
}

std::string csv_rows(const Table& table) {
  std::string text;
  for (const auto& row : table.rows) text += csv_line(row);
  return text;
}

std::string csv(const Table& table) { return csv_line(column_names(table)) + csv_rows(table); }

Table parse_csv(std::string_view text, const std::string& name) {
  Table table;
  int line = 1;
  while (!text.empty()) {
    const int first_line = line;
    if (table.columns.empty() && text.front() == '#') {
      text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
      ++line;
      continue;
    }
    std::vector<std::string> cells = take_csv_record(text, line);
    if (cells.size() == 1 && cells.front().empty()) continue;  // an empty line
    if (table.columns.empty()) {
      for (std::string& cell : cells) table.columns.push_back({std::move(cell)});
      continue;
    }
    if (cells.size() != table.columns.size()) {
      refuse(kInvalidArgument, "{}:{}: the row has {} cells, but there are {} names of columns",
             name, first_line, cells.size(), table.columns.size());
    }
    table.rows.push_back(std::move(cells));
  }
  if (table.columns.empty()) {
    refuse(kInvalidArgument, "{}:1: no line of column names; is it a CSV file?", name);
  }
  return table;
}

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string config_text(const std::string& config, bool full) {
  return full ? config : describe_config(config);
}

std::string tries_table(const std::vector<Trial>& tries, int most, bool full) {
  Table table = table_of({">time us", ">noise", ">estimate us", "status", "config"});
  for (const Trial& trial : tries) {
    if (most > 0 && static_cast<int>(table.rows.size()) == most) break;
    const Measurement& m = trial.measurement;
    const bool ok = m.status == Status::kOk;
    table.rows.push_back({ok ? fmt::format("{:.2f}", m.time_us) : "-",
                          ok ? fmt::format("{:.1f}%", 100 * m.noise) : "-",
                          fmt::format("{:.2f}", trial.estimate_us),
                          std::string(to_string(m.status)), config_text(trial.config, full)});
  }
  return aligned(table, "  ");
}

}  // namespace attnforge::cli
