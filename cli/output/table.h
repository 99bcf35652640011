// table.h - rows of text in aligned columns, for people; or as CSV. And configs in them, of which
// JSON and CSV have the whole text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/tune.h"

namespace attnforge::cli {

struct Column {
  std::string name;
  enum class Align { kLeft, kRight } align = Align::kLeft;
};

/// Every row has as many cells as there are columns.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

/// A table without rows yet. A name with > before it is of a column that ends at the right.
Table table_of(std::initializer_list<std::string> names);

/// For people: cells are made printable. A line of names, then a line a row; columns two blanks
/// apart, no blanks at the ends of lines.
std::string aligned(const Table& table, const std::string& indent = "");

/// RFC 4180, with a line of names; lines end in \n.
std::string csv(const Table& table);
/// CSV without the line of names: what is added to a file as rows come.
std::string csv_rows(const Table& table);

/// Reads what csv() writes, and what spreadsheets make of it (\r\n, quotes anywhere). Lines before
/// the names that begin with # are comments. Throws Error(kInvalidArgument) beginning with
/// "name:line: " for a row with more or fewer cells than there are names, and for a file without
/// any.
Table parse_csv(std::string_view text, const std::string& name);

/// "1 problem", "2 problems".
std::string counted(std::int64_t count, std::string_view one, std::string_view many);

/// What of a text of several lines fits into a cell: its first line.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Help of the flag --full, equal in every verb that shows configs.
inline constexpr const char* kFullHelp = "Configs as their whole text, as --config takes it";

/// In words, or `full`: the text as it is.
std::string config_text(const std::string& config, bool full);

/// The first `most` of them, 0: all. Indented.
std::string tries_table(const std::vector<Trial>& tries, int most, bool full);

}  // namespace attnforge::cli
