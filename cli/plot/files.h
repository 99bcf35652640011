// files.h - pictures in a folder: data, scripts, and what gnuplot makes of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/plot/figure.h"

namespace attnforge::cli {

/// Makes the folder, writes FILE.dat and FILE.gp of each picture and runs gnuplot (looked for on
/// PATH) on each script in the folder. Returns the paths of the PNG files. Throws Error(kIo) when a
/// file cannot be written, when gnuplot is not there (with what to install) or fails (with what it
/// said); all data and scripts are written before.
std::vector<std::string> draw(const std::vector<Picture>& pictures, const std::string& folder);

/// Draws what `pictures` makes, and says on standard error what was drawn. After Ctrl-C there
/// may be too few results for a picture: that is said too, and is no error.
void draw_results(const std::function<std::vector<Picture>()>& pictures, const std::string& folder);

}  // namespace attnforge::cli
