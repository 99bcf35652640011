// figure.cpp - figures as gnuplot scripts. Colours are those of Okabe and Ito, and the palette
// is viridis: both can be told apart by colour-blind readers; lines differ in dashes and marks too.
#include "cli/plot/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "attnforge/printable.h"

namespace attnforge::cli {
namespace {

struct Style {
  const char* colour;
  int dash, mark;
};
// Marks are open: one that lies on another hides nothing.
constexpr Style kStyles[] = {{"#0072B2", 1, 6},  {"#D55E00", 2, 4},  {"#009E73", 4, 8},
                             {"#CC79A7", 5, 12}, {"#E69F00", 3, 10}, {"#56B4E9", 1, 14},
                             {"#000000", 2, 1},  {"#8C6D31", 4, 2}};

/// In gnuplot's double quotes, in which it would run what stands between backquotes as a command.
/// Titles come from problems and names of GPUs, which may be of a database of others.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '`' ? std::string("\\140") : std::string(1, c);
  }
  return result + "\"";
}

/// Of a Figure or a HeatMap.
std::string head(const auto& figure) {
  return fmt::format(R"(# {0}.gp - drawn by attnforge. Edit it and draw again: gnuplot {0}.gp
set encoding utf8
set terminal pngcairo size 1500,900 font "DejaVu Sans,20" linewidth 2 noenhanced background "white"
set output "{0}.png"
set label 1 {1} at screen 0.5,0.955 center font "DejaVu Sans Bold,23"
set label 2 {2} at screen 0.5,0.905 center font ",15" textcolor rgb "#505050"
set label 3 {3} at screen 0.985,0.025 right font ",14" textcolor rgb "#707070"
set tmargin 5
set bmargin 5
set border 3 linewidth 1 linecolor rgb "#404040"
set tics nomirror out scale 0.6 textcolor rgb "#202020"
)",
                     figure.file, quoted(figure.title), quoted(figure.subtitle),
                     quoted(figure.note));
}

std::string tail(const std::string& file) {
  return fmt::format(R"(
set terminal svg size 1500,900 font "DejaVu Sans,20" linewidth 2 noenhanced background "white"
set output "{}.svg"
replot
)",
                     file);
}

const char* tick_format(Unit unit) {
  constexpr const char* kFormats[] = {"%g", "%.0s %cs", "%.0b %BB", "%g%%"};
  return kFormats[static_cast<std::size_t>(unit)];
}

std::string axis_lines(const char* axis, const PlotAxis& a) {
  std::string text = fmt::format("set {}label {}\n", axis, quoted(a.name));
  if (a.logarithmic)
    text += fmt::format("set logscale {} {}\n", axis, a.unit == Unit::kBytes ? 2 : 10);
  return text + fmt::format("set format {} \"{}\"\n", axis, tick_format(a.unit));
}

/// Every x of a measured point that is not within a label's width of the one before.
std::string x_ticks(const Figure& figure) {
  std::set<double> all;
  for (const Curve& curve : figure.curves) {
    if (curve.look == Curve::Look::kComputed) continue;
    for (const auto& [x, y] : curve.points) all.insert(x);
  }
  if (all.empty()) return "";
  constexpr double kLeastShare = 0.033;  // of the axis between two ticks
  const double first = *all.begin(), last = *all.rbegin();
  const bool logarithmic = figure.x.logarithmic && first > 0;
  std::vector<double> ticks;
  for (const double x : all) {
    if (!ticks.empty()) {
      const double share = logarithmic ? std::log(x / ticks.back()) / std::log(last / first)
                                       : (x - ticks.back()) / (last - first);
      if (share < kLeastShare) continue;
    }
    ticks.push_back(x);
  }
  constexpr std::size_t kManyTicks = 8;
  std::string text = fmt::format("set xtics ({}){}\n", fmt::join(ticks, ", "),
                                 ticks.size() > kManyTicks ? " font \",13\"" : "");
  if (logarithmic) return text + fmt::format("set xrange [{}:{}]\n", first / 1.12, last * 1.12);
  const double margin = std::max(1.0, 0.04 * (last - first));
  return text + fmt::format("set xrange [{}:{}]\n", first - margin, last + margin);
}

/// Ticks at 1, 2 and 5 of each decade where decades alone would be too few.
std::string few_decades_ticks(const PlotAxis& axis, double first, double last) {
  constexpr double kEnoughDecades = 200;
  if (axis.unit == Unit::kBytes || last / first > kEnoughDecades) return "";
  std::vector<double> ticks;
  for (double decade = std::pow(10, std::floor(std::log10(first))); decade <= last; decade *= 10)
    for (const double digit : {1, 2, 5}) ticks.push_back(digit * decade);
  return fmt::format("set ytics ({:.3g})\n", fmt::join(ticks, ", "));
}

/// A little more than what is drawn; from 0 where the axis is linear.
std::string y_range(const Figure& figure) {
  double least = 0, most = 0;
  for (const Curve& curve : figure.curves) {
    for (const auto& [x, y] : curve.points) {
      if (std::isnan(y)) continue;
      least = least == 0 ? y : std::min(least, y);
      most = std::max(most, y);
    }
  }
  if (!(most > 0)) return "";
  if (figure.y.logarithmic && least > 0) {
    return fmt::format("set yrange [{:.6g}:{:.6g}]\n", least / 1.6, most * 1.6) +
           few_decades_ticks(figure.y, least / 1.6, most * 1.6);
  }
  return fmt::format("set yrange [{:.6g}:{:.6g}]\n", std::min(0.0, 1.1 * least), 1.08 * most);
}

}  // namespace

Picture picture_of(const Figure& figure) {
  Picture picture{.file = figure.file, .data = {}, .script = {}};
  picture.data = fmt::format("# {} against {}; a block a line of the figure\n", figure.y.name,
                             figure.x.name);
  std::string plot;
  std::size_t measured = 0;
  for (std::size_t i = 0; i < figure.curves.size(); ++i) {
    const Curve& curve = figure.curves[i];
    picture.data += quoted(curve.name) + "\n";
    for (std::size_t n = 0; n < curve.points.size(); ++n) {
      const auto& [x, y] = curve.points[n];
      if (!std::isnan(y)) picture.data += fmt::format("{} {:.6g}", x, y);
      if (!curve.errors.empty()) picture.data += fmt::format(" {:.4g}", curve.errors[n]);
      picture.data += "\n";  // alone it is a gap
    }
    picture.data += "\n\n";
    const Style& style = kStyles[measured % std::size(kStyles)];
    const bool computed = curve.look == Curve::Look::kComputed;
    if (!computed) ++measured;
    const std::string colour = fmt::format("linecolor rgb \"{}\"",
                                           computed ? "#404040" : style.colour);
    const std::string mark = fmt::format("pointtype {} pointsize 1.2", style.mark);
    const std::string block = fmt::format("  \"{}.dat\" index {} using ", figure.file, i);
    if (i > 0) plot += ", \\\n";
    if (!curve.errors.empty()) {
      // Not `with yerrorbars`: that wipes out a disc around each point, bars and other lines too.
      plot += block + "1:($2-$3):(0):(2*$3) with vectors heads size graph 0.004,90 " + colour +
              " linewidth 1 notitle, \\\n";
    }
    plot += block + "1:2 with ";
    if (computed) {
      plot += "lines " + colour + " dashtype (6,6) linewidth 1";
    } else if (curve.look == Curve::Look::kMarks) {
      plot += "points " + colour + " " + mark;
    } else {
      plot += fmt::format("linespoints {} dashtype {} linewidth 1.5 {}", colour, style.dash, mark);
    }
    plot += fmt::format(" title {}", quoted(curve.name));
  }
  picture.script = head(figure);
  picture.script += axis_lines("x", figure.x) + axis_lines("y", figure.y);
  picture.script += x_ticks(figure) + y_range(figure);
  picture.script +=
      "set grid xtics ytics linetype 1 linewidth 0.5 linecolor rgb \"#dcdcdc\"\n"
      "set key outside right center Left reverse samplen 4 spacing 1.3 font \",16\"\n"
      "plot \\\n";
  picture.script += plot + "\n" + tail(figure.file);
  return picture;
}

Picture picture_of(const HeatMap& map) {
  Picture picture{.file = map.file, .data = {}, .script = {}};
  picture.data = fmt::format("# column, row, {}: {} by {}\n", map.z_name, map.x_name, map.y_name);
  double least = 0, most = 0;
  for (std::size_t y = 0; y < map.ys.size(); ++y) {
    for (std::size_t x = 0; x < map.xs.size(); ++x) {
      const std::optional<double>& cell = map.cells[y][x];
      if (!cell) {
        picture.data += fmt::format("{} {} NaN\n", x, y);
        continue;
      }
      picture.data += fmt::format("{} {} {:.6g}\n", x, y, *cell);
      least = least == 0 ? *cell : std::min(least, *cell);
      most = std::max(most, *cell);
    }
  }
  const auto ticks = [](const char* axis, const std::vector<int>& values) {
    std::string list;
    for (std::size_t i = 0; i < values.size(); ++i)
      list += fmt::format("{}\"{}\" {}", i == 0 ? "" : ", ", values[i], i);
    return fmt::format("set {0}tics ({1})\nset {0}range [-0.5:{2}.5]\n", axis, list,
                       values.size() - 1);
  };
  std::string& script = picture.script;
  script = head(map);
  script += axis_lines("x", {map.x_name}) + axis_lines("y", {map.y_name});
  script += ticks("x", map.xs) + ticks("y", map.ys);
  script += fmt::format(R"(set border 0
set tics scale 0
unset key
set cblabel {} offset 1,0
set cbrange [{:.6g}:{:.6g}]
set palette defined (0 "#fde725", 1 "#b5de2b", 2 "#6ece58", 3 "#35b779", 4 "#1f9e89", 5 "#26828e", 6 "#31688e", 7 "#3e4989", 8 "#482878", 9 "#440154")
set object 1 rectangle from graph 0,0 to graph 1,1 fillcolor rgb "#ececec" fillstyle solid noborder behind
set object 2 rectangle center {},{} size 0.94,0.94 front fillstyle empty border linecolor rgb "#D55E00" linewidth 4
bright(z) = z < {:.6g}
plot \
  "{}.dat" using 1:2:3 with image pixels, \
  "" using 1:2:(strcol(3) ne "NaN" && bright(real(strcol(3))) ? sprintf("%.4g", real(strcol(3))) : "") with labels font ",16" textcolor rgb "#000000", \
  "" using 1:2:(strcol(3) ne "NaN" && !bright(real(strcol(3))) ? sprintf("%.4g", real(strcol(3))) : "") with labels font ",16" textcolor rgb "#ffffff"
)",
                        quoted(map.z_name), least, std::max(most, least * 1.001), map.winner_x,
                        map.winner_y, least + 0.45 * (most - least), map.file);
  script += tail(map.file);
  return picture;
}

}  // namespace attnforge::cli
