// figure.h - a figure as data, as the texts of a gnuplot script and of its data file, and drawn in
// a folder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attnforge::cli {

/// What the numbers of an axis are; decides how ticks are written ("100 us", "64 MiB", "25%").
enum class Unit { kNone, kSeconds, kBytes, kPercent };

struct PlotAxis {
  std::string name;  // with its unit, where ticks have none
  Unit unit = Unit::kNone;
  bool logarithmic = false;
};

/// A line of a figure.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // y NaN: a gap, where the line jumps
  enum class Look { kLine, kMarks, kComputed } look = Look::kLine;
  // kMarks: what lies between the points means nothing. kComputed: not measured; thin, dashed,
  // grey.
  std::vector<double> errors{};  // by how much y of each point spreads, up and down; empty: unknown
};

/// Lines over one x axis, which has a tick at each x of a point.
struct Figure {
  std::string file;  // without its ending: "latency"
  std::string title;
  std::string subtitle;  // what all lines have in common
  std::string note;      // GPU and date
  PlotAxis x, y;
  std::vector<Curve> curves;
};

/// A number for each cell of a grid: columns x, rows y.
struct HeatMap {
  std::string file, title, subtitle, note;
  std::string x_name, y_name, z_name;
  std::vector<int> xs, ys;
  std::vector<std::vector<std::optional<double>>>
      cells;                               // [y][x]; none: nothing was measured there
  std::size_t winner_x = 0, winner_y = 0;  // places in xs and ys
};

/// The files of a picture. The script draws FILE.png and FILE.svg where it stands, from FILE.dat.
struct Picture {
  std::string file;
  std::string data;
  std::string script;
};

Picture picture_of(const Figure& figure);
Picture picture_of(const HeatMap& map);

/// Makes the folder, writes FILE.dat and FILE.gp of each picture and runs gnuplot (looked for on
/// PATH) on each script in the folder. Returns the paths of the PNG files. Throws Error(kIo) when a
/// file cannot be written, when gnuplot is not there (with what to install) or fails (with what it
/// said); all data and scripts are written before.
std::vector<std::string> draw(const std::vector<Picture>& pictures, const std::string& folder);

/// Draws what `pictures` makes, and says on standard error what was drawn. After Ctrl-C there
/// may be too few results for a picture: that is said too, and is no error.
void draw_results(const std::function<std::vector<Picture>()>& pictures, const std::string& folder);

}  // namespace attnforge::cli
