// memory_time.h - what a problem takes where its tensors come from memory as fast as they can.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Whether one tile holds all query rows of a K/V head: keys are read once, and what counts
/// is how fast they come.
bool has_few_rows(const Problem& problem);

/// For one time through all tensors. 0 if the memory is not known.
double memory_us(const Problem& problem, const DeviceFacts& device);

/// `us` of a model that knows no memory: no less than memory_us(), and more where both are alike.
/// The order of several times stays.
double with_memory_time(double us, const Problem& problem, const DeviceFacts& device);

/// For reads of K and V by tiles that have pack_gqa of the heads of a group: the L2 has them for
/// all but the first.
double reads_us(const Problem& problem, int pack_gqa, const DeviceFacts& device);

}  // namespace attnforge
