// memory_time.h - what a problem takes where its tensors come from memory as fast as they can.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Bytes that memory brings together: rows that begin or end inside of such a piece bring all of
/// it.
inline constexpr int kMemoryPiece = 64;

/// Whether one tile holds all query rows of a K/V head: keys are read once, and what counts
/// is how fast they come.
bool has_few_rows(const Problem& problem);

/// What the memory moves at its peak, read and written bytes together. 0 if it is not known.
double peak_bytes_per_us(const DeviceFacts& device);

/// For one time through all tensors. 0 if the memory is not known.
double memory_us(const Problem& problem, const DeviceFacts& device);

/// `us` of a model that knows no memory: no less than memory_us() times `rounds`, and more where
/// both are alike. The order of several times stays.
double with_memory_time(double us, const Problem& problem, const DeviceFacts& device,
                        double rounds = 1);

/// How many times as long `blocks` that read keys take as where all SMs read until the end. In a
/// last round that is not full an SM gets some times its share of the memory, and no more.
double late_readers(double blocks, const DeviceFacts& device);
/// The same of few rows of fixed lengths over the batches of a bucket, on the average, with as many
/// `blocks` a query tile in each.
double late_readers(const Problem& problem, double blocks, const DeviceFacts& device);
/// Family::spread() of a kernel with as many `blocks` a query tile in every batch of a bucket: more
/// than 1 only for few rows of fixed lengths.
double spread_of_batches(const Problem& problem, double blocks, const DeviceFacts& device);

/// For reads of K and V by tiles that have pack_gqa of the heads of a group: the L2 has them for
/// all but the first.
double reads_us(const Problem& problem, int pack_gqa, const DeviceFacts& device);

}  // namespace attnforge
