// instruments_params.h - the arguments of the tuner's own small kernels. Compiled by g++ and,
// together with instruments.cuh, by NVRTC.
#pragma once

namespace attnforge {

/// 16-bit words set to one value, or counted where they differ from it.
struct WordsParams {
  void* data;
  unsigned long long count;
  unsigned long long* different;  // null: set
  unsigned value;
};

/// Normal numbers made from their index and a seed, or counted where they differ from that. Those
/// of 4 bits come in bytes of two, which count.
struct NormalParams {
  void* data;
  unsigned long long count;
  unsigned long long seed;
  unsigned long long* different;  // null: set
  int dtype;                      // as attnforge::DType
  float mean, deviation;
};

/// Elements of an output that still hold the poison, and others that are NaN.
struct ScanParams {
  const void* data;
  unsigned long long count;
  unsigned long long* counters;  // [0] poison, [1] other NaN
  unsigned poison;               // 16 bits; an fp32 element is poison when both halves are
  int dtype;
};

/// Rows of [batch, row, head, width] with strides, copied to a contiguous [heads, num_rows, width].
/// All in units of 16 bits.
struct GatherParams {
  const void* from;
  void* to;
  const int* rows;  // [num_rows] of {batch, row}
  long long stride_batch, stride_row, stride_head;
  int heads, num_rows, width;
};

/// Holds the stream until *open is `ticket`, or for `limit_ns`; then writes `ticket` to *expired.
/// Both in host memory.
struct GateParams {
  const unsigned* open;
  unsigned* expired;
  unsigned long long limit_ns;
  unsigned ticket;
};

struct ClockStamp {
  unsigned long long taken;  // 0: no block of the launch ran on this SM
  unsigned long long cycles;
  unsigned long long ns;
};

/// Cycle counter and time of every SM that runs a block, at its %smid.
struct ClockParams {
  ClockStamp* stamps;
  unsigned count;
};

}  // namespace attnforge
