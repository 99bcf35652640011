// host.h - the source and the launch of the kernels of attention weights, for a forward problem.
#pragma once

#include <cstdint>
#include <string>

#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/source.h"

namespace attnforge {

/// Weights of listed queries, or their sums over all queries.
enum class WeightsOf : std::uint8_t { kRows, kQueries };

/// Device memory that WeightsParams (config.h) has.
struct WeightsMemory {
  const int* rows = nullptr;
  std::int64_t num_rows = 0;
  float* to = nullptr;
  std::int64_t stride_batch = 0, stride_head = 0, stride_row = 0;
};

/// "" or why the weights of a problem are not computed.
std::string without_weights(const Problem& problem);

/// What of a problem its weights depend on: kernels of others are the same.
Problem weights_problem(const Problem& problem);

/// How many thread blocks a launch has.
double weights_blocks(const Problem& problem, WeightsOf what, std::int64_t num_rows);

/// Of a weights_problem().
Source weights_source(const Problem& problem, WeightsOf what);
/// There is a key and a row, or a query.
LaunchStep weights_step(const Problem& problem, WeightsOf what, const WeightsMemory& memory);

}  // namespace attnforge
