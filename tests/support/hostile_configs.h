// hostile_configs.h - configs that nobody would search: what a text, a row of a database or an
// import may say.
#pragma once

#include <random>
#include <span>
#include <string>
#include <vector>

#include "generator/candidates.h"

namespace attnforge::test {

/// Problems with shared heads, odd and unequal head dims, few queries, masks, ropes; of 16 bits and
/// fp32.
std::span<const Problem> hostile_problems();

/// `config` with one field changed at a time: to numbers that break arithmetic, and to the
/// neighbours of its value.
std::vector<Config> mutations_of(const Config& config);

/// `config` with a few of its fields changed to values that their rules allow.
Config recombined(const Family& family, const Config& config, std::mt19937& random);

/// Configs that illegal() accepts and that are not among the candidates: at most `count`, fewer
/// where few are found.
std::vector<Candidate> unsearched_configs(const Family& family, const Problem& problem,
                                          const DeviceFacts& device, int count, unsigned seed);

}  // namespace attnforge::test
