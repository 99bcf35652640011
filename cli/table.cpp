#include "cli/table.h"

#include <algorithm>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

std::vector<std::string> names(const Table& table) {
  std::vector<std::string> cells;
  for (const Column& column : table.columns) cells.push_back(column.name);
  return cells;
}

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == cell.npos) return cell;
  std::string text = "\"";
  for (char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

}  // namespace

std::string aligned(const Table& table, const std::string& indent) {
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(column.name.size());
  for (const auto& row : table.rows) {
    ATTNFORGE_ASSERT(row.size() == widths.size(), "a table's row has a cell for each column");
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
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
  put(names(table));
  for (const auto& row : table.rows) put(row);
  return text;
}

std::string csv(const Table& table) {
  std::string text;
  const auto put = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += ',';
      text += quoted(cells[i]);
    }
    text += '\n';
  };
  put(names(table));
  for (const auto& row : table.rows) put(row);
  return text;
}

}  // namespace attnforge::cli
