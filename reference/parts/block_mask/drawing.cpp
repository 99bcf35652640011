// drawing.cpp - a block mask as text and as an SVG picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attnforge/block_mask.h"
#include "attnforge/error.h"

namespace attnforge {
namespace {

/// The blocks below a cell of a drawing.
struct Cell {
  std::int64_t blocks = 0, full = 0, partial = 0;
};

struct Cells {
  std::int64_t rows = 0, columns = 0;
  std::vector<Cell> cells;
  const Cell& at(std::int64_t row, std::int64_t column) const {
    return cells[row * columns + column];
  }
};

Cells cells_of(const BlockMask& mask, std::int64_t head, std::int64_t sequence, std::int64_t most) {
  const std::int64_t q_blocks = mask.q_blocks(), kv_blocks = mask.kv_blocks();
  if (head < 0 || head >= mask.heads || sequence < 0 || sequence >= mask.batch || most < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no drawing of head {} of {} and sequence {} of {} in {} cells", head,
                            mask.heads, sequence, mask.batch, most));
  }
  Cells drawing{std::min(most, q_blocks), std::min(most, kv_blocks), {}};
  drawing.cells.resize(static_cast<std::size_t>(drawing.rows * drawing.columns));
  const auto cell = [&](std::int64_t row, std::int64_t column) -> Cell& {
    return drawing.cells[row * drawing.rows / q_blocks * drawing.columns +
                         column * drawing.columns / kv_blocks];
  };
  const std::int64_t first = (sequence * mask.heads + head) * q_blocks;
  for (std::int64_t row = 0; row < q_blocks; ++row) {
    for (std::int64_t column = 0; column < kv_blocks; ++column) ++cell(row, column).blocks;
    const auto at = static_cast<std::size_t>(first + row);
    for (int entry = mask.row_begin[at]; entry < mask.row_begin[at + 1]; ++entry) {
      const int column = mask.columns[entry];
      Cell& of = cell(row, column / 2);
      ++(column % 2 != 0 ? of.partial : of.full);
    }
  }
  return drawing;
}

}  // namespace

std::string to_text(const BlockMask& mask, std::int64_t head, std::int64_t sequence, int most) {
  const Cells drawing = cells_of(mask, head, sequence, most);
  std::string text;
  for (std::int64_t row = 0; row < drawing.rows; ++row) {
    for (std::int64_t column = 0; column < drawing.columns; ++column) {
      const Cell& cell = drawing.at(row, column);
      const bool none = cell.full + cell.partial == 0;
      text += none ? ' ' : cell.full == cell.blocks ? '#' : '+';
    }
    text += '\n';
  }
  return text;
}

std::string to_svg(const BlockMask& mask, std::int64_t head, std::int64_t sequence, int size_px) {
  constexpr std::int64_t kMostCells = 256;
  const Cells drawing = cells_of(mask, head, sequence, kMostCells);
  const std::int64_t width = std::max<std::int64_t>(1, drawing.columns),
                     height = std::max<std::int64_t>(1, drawing.rows);
  const double unit = static_cast<double>(size_px) / static_cast<double>(std::max(width, height));
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"0 0 "
      "{} {}\" shape-rendering=\"crispEdges\"><title>block mask: dark is full, light partial, "
      "blank "
      "not computed</title><rect width=\"{}\" height=\"{}\" fill=\"#f2f2f2\"/>",
      static_cast<double>(width) * unit, static_cast<double>(height) * unit, width, height, width,
      height);
  // How dark a cell is: a partial block counts less than a full one.
  constexpr double kPartialShade = 0.45;
  const auto shade = [&](std::int64_t row, std::int64_t column) {
    const Cell& cell = drawing.at(row, column);
    const double sum = static_cast<double>(cell.full) +
                       kPartialShade * static_cast<double>(cell.partial);
    return static_cast<int>(std::lround(100 * sum / static_cast<double>(cell.blocks)));
  };
  for (std::int64_t row = 0; row < drawing.rows; ++row) {
    for (std::int64_t column = 0, end = 0; column < drawing.columns; column = end) {
      const int percent = shade(row, column);
      for (end = column + 1; end < drawing.columns && shade(row, end) == percent;) ++end;
      if (percent == 0) continue;
      svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"1\" fill=\"#1f4e79\"{}/>",
                         column, row, end - column,
                         percent == 100 ? "" : fmt::format(" fill-opacity=\"0.{:02}\"", percent));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace attnforge
