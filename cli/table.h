// table.h - rows of text in aligned columns, for people; or as CSV.
#pragma once

#include <string>
#include <vector>

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

/// A line of names, then a line a row; columns two blanks apart, no blanks at the ends of lines.
std::string aligned(const Table& table, const std::string& indent = "");

/// RFC 4180, with a line of names; lines end in \n.
std::string csv(const Table& table);

}  // namespace attnforge::cli
