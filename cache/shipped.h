// shipped.h - winners that ship with the library, data/winners/*.jsonl, which cache/CMakeLists.txt
// embeds: what a plan takes where no database has one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.h"

namespace attnforge {

/// A line of such a file.
struct Shipped {
  Try best;
  std::string code;  // digest of the machine code that was measured, which best.nvrtc compiled
};

/// One file: a line that says where and by what all was measured, then a line a winner.
using WinnersFile = std::string_view;

/// Those in the library; the definition is generated. Look-ups ask the file that
/// ATTNFORGE_SHIPPED_WINNERS names in their place, or none if that is 0.
extern const std::span<const WinnersFile> kWinnersFiles;

/// What ATTNFORGE_SHIPPED_WINNERS=`path` has: "" for 0. Throws Error(kCache) if it cannot be read.
std::string winners_named(const std::string& path);

/// All of a file. Throws Error(kCache) with the line's number for one that cannot be read.
std::vector<Shipped> read_winners(WinnersFile file);
/// The text that read_winners() reads, of winners that were measured on one GPU class by one
/// driver and NVRTC; not empty.
std::string winners_text(std::span<const Shipped> winners);

/// Those of a problem on GPUs of an sm, of `device_class` first. Looks at the lines of the problem
/// alone: some microseconds. Never throws.
std::vector<Shipped> shipped_winners(std::string_view problem, std::string_view device_class,
                                     int sm);
/// The winners of all problems on a GPU class. About a millisecond. Never throws.
std::vector<Chosen> shipped_chosen(std::string_view device_class);

}  // namespace attnforge
