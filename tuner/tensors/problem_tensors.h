// problem_tensors.h - the tensors of a problem in device memory: random inputs, outputs between
// canaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "generator/tensors/operands.h"
#include "reference/sequences.h"
#include "runtime/memory.h"
#include "tuner/instruments.h"

namespace attnforge {

/// Inputs are standard normal numbers, the same for the same seed, between guards of NaN: what is
/// read past an end shows in the output. Tables are followed by NaNs; sequences are random ones.
/// Outputs are between guards of canaries. A guard has 128 rows of its tensor, but at least 4 KiB
/// and at most 1 MiB. Pointers are aligned to exactly problem.alignment_bytes (16: to 256).
class ProblemTensors {
 public:
  /// Allocates and fills. Throws Error(kCuda) when memory is short, with the bytes needed.
  ProblemTensors(const Problem& problem, unsigned seed, const Instruments& instruments,
                 CUstream stream);

  const Tensors& tensors() const { return tensors_; }
  Sequences sequences() const { return sequences_of(problem_, tables_); }
  /// Where the operand of that place among the problem's operands() lies.
  void* address(std::size_t place) const { return placed_.at(place).region.data(); }

  /// Enqueues: outputs to kPoison, or to random numbers where they are added to, guards to kCanary.
  void poison_outputs(CUstream stream) const;
  /// Enqueues: the bits of outputs are taken down, for the next check() to compare.
  void remember(CUstream stream);
  /// Enqueues the checks of what a run must leave alone or must have written.
  void check(CUstream stream);
  /// After the stream has passed check(): "" or what is wrong, and puts inputs right again if those
  /// were.
  std::string findings(CUstream stream);

 private:
  struct Region {
    Buffer memory;
    std::size_t begin = 0, bytes = 0;  // of the tensor in memory
    void* data() const { return static_cast<char*>(memory.data()) + begin; }
    std::size_t words_after() const { return (memory.size_bytes() - begin - bytes) / 2; }
  };
  Region allocate(std::size_t bytes, std::size_t row_bytes, std::size_t least_alignment) const;
  /// Sets the guards of a region, or counts what differs in them.
  void guard(const Region& region, std::uint16_t value, CUstream stream,
             std::uint64_t* different = nullptr) const;
  void fill_inputs(CUstream stream) const;
  std::uint64_t* counter(int index) const {
    return static_cast<std::uint64_t*>(counters_.data()) + index;
  }

  struct Placed {
    Operand operand;
    Region region;
    std::uint64_t seed = 0;  // of an input
  };
  bool is(const Placed& placed, Operand::Role role) const { return placed.operand.role == role; }
  /// Fills a tensor with its random numbers, or counts what differs from them.
  void random(const Placed& placed, CUstream stream, std::uint64_t* different = nullptr) const;
  /// Elements of an output that a run writes: rows after a length are left alone.
  std::uint64_t left_alone(const Operand& output) const;

  const Problem problem_;
  const Instruments& instruments_;
  const HostTensors tables_;  // of a problem without anything but tables
  std::vector<Placed> placed_;
  std::vector<std::uint64_t> words_;  // tensors_ points to them
  Tensors tensors_;
  /// Adds to kPerOutput counts for each output.
  void scan_outputs(std::uint64_t* counts, CUstream stream) const;

  Buffer counters_, remembered_;
};

}  // namespace attnforge
