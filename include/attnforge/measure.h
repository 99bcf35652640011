// measure.h - what a run computes, as far as it is known: the pairs that its mask lets through,
// counted; and how long a plan takes on its GPU, by the clock of the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "attnforge/device.h"
#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Floating point operations, or why they are unknown: then there are no TFLOP/s.
struct Work {
  double flops = 0;       // flops_of_pairs() of the visible pairs; 0 where they are not known
  std::string unknown{};  // "only the GPU knows how long its sequences are"; "": they are known

  bool is_known() const { return unknown.empty(); }
  /// TFLOP/s of a run that takes so long; 0: not known.
  double tflops_per_s(double time_us) const { return time_us > 0 ? flops / time_us * 1e-6 : 0; }
};

/// Exact: windows, those of a mask text among them, and whole blocks by their sizes; what else a
/// text hides by asking it of each pair, of at most 2^24 of them, fewer of a long text. Of `tables`
/// only lengths, block masks and arrays are looked at; those that are empty are not known. `arrays`
/// are the bytes of each of the problem's arguments in their order, in place of the tables', empty
/// for numbers and for arrays that are not known. Not known either is a text that only a compiler
/// can read. Throws Error(kInvalidArgument) for lengths and lists that are none of the problem's.
ATTNFORGE_API Work work_of(const Problem& problem, const HostTensors& tables = {},
                           std::span<const std::span<const std::byte>> arrays = {});

/// The work of a run on the tables that tune() and measure() make up.
ATTNFORGE_API Work timed_work(const Problem& problem, std::uint64_t seed = 1);

/// Which keys a query sees for where it stands: from its position - left to its position + right;
/// none: all on that side. Bounds of a mask text may be negative.
struct SeenKeys {
  std::optional<std::int64_t> left{}, right{};
  bool more_hidden = false;  // a mask's blocks or text hide some of these too
  bool text_hides = false;   // a text does, of which estimates know no more than windows
};
ATTNFORGE_API SeenKeys seen_keys(const Problem& problem);

struct MeasureOptions {
  int min_samples = 10;       // 1 to 1,000,000
  int max_samples = 200;      // not below min_samples, to 1,000,000
  double time_limit_s = 1.0;  // no sample is begun after it, but min_samples are always taken
  unsigned seed = 1;          // of inputs that measure() makes itself
  std::function<bool()> cancelled{};  // asked after each batch of samples; true: those must do
};

/// Device memory of a run in bytes.
struct MemoryUse {
  std::int64_t inputs = 0;     // q, k, v, and tables
  std::int64_t outputs = 0;    // o, lse
  std::int64_t workspace = 0;  // of the plan
  std::int64_t peak = 0;       // all of that: what is allocated while the kernel runs
  std::int64_t
      driver = 0;  // by how much the driver's free memory fell meanwhile: with what it adds,
                   // in units of 2 MiB as a rule, and with other processes' allocations
};

struct BenchResult {
  double time_us = 0;  // median
  double min_us = 0;
  double noise = 0;      // interquartile range / median
  double clock_mhz = 0;  // SM clock during the samples; 0: unknown
  int samples = 0;
  double tflops_per_s = 0;       // work_of() / time: of the visible pairs only; 0: not known
  std::string work_unknown{};    // why they are not known; "": they are
  double gbytes_per_s = 0;       // minimum_bytes(problem) / time, 1e9 bytes
  double cache_tb_per_s = 0;     // k and v / time, 1e12 bytes; 0 where only the GPU knows lengths
  double ns_per_token_head = 0;  // time / (batch * seqlen_q * num_heads_q); 0 when there are none
  MemoryUse memory{};            // zeros when the tensors are the caller's
};

/// Runs `plan` on the caller's tensors, over and over, the L2 cache overwritten before each sample,
/// by the same timer as tune(); waits for the end. Warms the GPU up first. Measurements on one GPU
/// disturb each other: one at a time. Throws as Plan::run, Error(kNoDriver) without NVRTC (the
/// timer has small kernels of its own), Error(kCuda).
ATTNFORGE_API BenchResult measure(const Plan& plan, Device& device, const Tensors& tensors,
                                  void* workspace, const MeasureOptions& options = {});

/// Times a plan on random inputs in GPU memory of its own, which is measured too.
ATTNFORGE_API BenchResult measure(const Plan& plan, Device& device,
                                  const MeasureOptions& options = {});

}  // namespace attnforge
