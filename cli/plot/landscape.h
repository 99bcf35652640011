// landscape.h - the tuning landscape of a problem: the best time for each pair of values of
// two axes of a family's configs. Pure.
#pragma once

#include <string>
#include <vector>

#include "attnforge/tune.h"
#include "cli/plot/figure.h"

namespace attnforge::cli {

struct LandscapeOptions {
  std::string x{}, y{};  // fields of configs; "": block_n and block_m if they vary, else the first
                         // two that do
  std::string note{};    // GPU and date
  std::string prefix{};  // of file names: "landscape_3"
};

/// Options with the axes of "block_n,stages"; "" leaves the choice. Throws Error(kInvalidArgument).
LandscapeOptions landscape_options(const std::string& axes);

/// One map for each family among `trials` that has two fields with several values each; the time in
/// a cell is the best over all other fields, and the fastest of all is marked. Failed trials are
/// left out. Throws Error(kInvalidArgument) if a requested field does not vary in any
/// family (listing those that do), or if nothing can be drawn.
std::vector<HeatMap> landscapes(const std::string& problem, const std::vector<Trial>& trials,
                                const LandscapeOptions& options);

/// What was tried for a problem.
struct Search {
  std::string problem{};
  std::vector<Trial> trials{};
  std::string note{};  // GPU and date
};

/// The landscapes of all searches that have trials, with `axes` as landscape_options() takes them.
/// Names of files say which search it is where there are several.
std::vector<Picture> landscape_pictures(const std::vector<Search>& searches,
                                        const std::string& axes);

}  // namespace attnforge::cli
