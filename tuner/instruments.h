// instruments.h - the tuner's own small kernels, compiled and loaded: random inputs, poison,
// canaries, a gate, clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/source.h"
#include "generator/tensors/operands.h"
#include "runtime/kernel.h"
#include "tuner/instruments_params.h"

namespace attnforge {

/// instruments_params.h and instruments.cuh as one text; generated when attnforge is built.
std::string_view instruments_text();
/// The source of the instruments, to compile.
Source instruments_source();

/// A NaN in fp16 and bf16, and in fp32 when both halves are: what outputs hold before a run.
inline constexpr std::uint16_t kPoison = 0x7fd5;
/// What is around outputs.
inline constexpr std::uint16_t kCanary = 0x5ca3;
/// No number that normal() makes is larger.
inline constexpr double kLargestNormal = 5.9;

/// Everything is enqueued on `stream` and returns at once. Counters are in device memory and are
/// added to.
class Instruments {
 public:
  /// Compiles for `arch` and loads in the current context. Throws as compile() and Kernel::load().
  explicit Instruments(const Arch& arch);
  /// Of their code.
  explicit Instruments(std::span<const std::byte> cubin);

  /// Sets words, or counts those that differ where there is a counter.
  void words(void* data, std::size_t count, std::uint16_t value, CUstream stream,
             std::uint64_t* different = nullptr) const;
  /// Likewise normal numbers; of 4 bits an even number.
  void normal(void* data, std::size_t count, DType dtype, const RandomRange& range,
              std::uint64_t seed, CUstream stream, std::uint64_t* different = nullptr) const;
  /// counters[0]: elements that still hold kPoison; counters[1]: other NaNs; counters[2]: a sum of
  /// all bits, in which each element counts by its place.
  void scan(const void* data, std::size_t count, DType dtype, std::uint64_t* counters,
            CUstream stream) const;
  void gather(const GatherParams& params, CUstream stream) const;
  void gate(const GateParams& params, CUstream stream) const;
  /// One stamp for each SM that gets one of 2 * num_sms blocks.
  void stamp_clocks(ClockStamp* stamps, std::size_t count, int num_sms, CUstream stream) const;

 private:
  Kernel words_, normal_, scan_, gather_, gate_, clock_;
};

/// Median over the SMs in both lists of cycles / time, in MHz; 0 when there is none or the time
/// between is under 100 us, which is too short for the timer's resolution.
double clock_mhz(const std::vector<ClockStamp>& before, const std::vector<ClockStamp>& after);

}  // namespace attnforge
