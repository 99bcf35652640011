// mutate.h - new inputs out of known ones, the same for the same seed on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnforge::fuzz {

/// Random numbers that do not depend on the standard library (splitmix64: Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// From 0 to count - 1; 0 for a count of 0.
  std::size_t below(std::size_t count) { return count == 0 ? 0 : next() % count; }

 private:
  std::uint64_t state_;
};

inline constexpr std::size_t kMostInputBytes = 8192;

/// `input` after one to eight changes: bits, bytes, ranges, blank-separated words, numbers; parts
/// of `other`. At most kMostInputBytes.
std::string mutated(std::string input, const std::string& other,
                    const std::vector<std::string>& words, Random& random);

}  // namespace attnforge::fuzz
