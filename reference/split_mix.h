// split_mix.h - random numbers that are the same on every machine (SplitMix64, Steele et al. 2014).
#pragma once

#include <cstdint>

namespace attnforge {

/// What the counter of SplitMix64 grows by.
inline constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

/// Its finalizer: a good 64-bit hash of a counter, so that any piece can be filled by any thread.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace attnforge
