// launch.h - a launch as data: what a family asks the driver to do, with no driver types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge {

struct Tensor;     // attnforge/plan.h
struct Tensors;    // attnforge/plan.h
struct RunMemory;  // below

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;

  friend bool operator==(const Dim3&, const Dim3&) = default;
};

/// A tensor map (CUtensorMap, 128 bytes): how TMA sees one of the tensors of a run.
/// runtime/tensor_map.h encodes it, with the pointer and the strides of that run and with the
/// TensorMapSizes that are in its place before.
struct TensorMapSpec {
  /// Which tensor. That of a part of a problem is a constant of the family that maps it.
  struct Operand {
    const char* name;  // for messages
    bool of_keys;      // its rows are those of keys; else of queries
    Tensor& (*in)(Tensors&);

    static const Operand kQ, kK, kV;  // the ones of every problem

    friend bool operator==(const Operand& a, const Operand& b) { return a.in == b.in; }
  };
  Operand operand = Operand::kQ;
  DType dtype = DType::kBf16;
  // Dimensions {column, row, head, batch}; with packed_heads > 0 {column, head % packed_heads, row,
  // head / packed_heads, batch}. Elements outside are read as zeros.
  int columns = 0;
  int packed_heads = 0;
  // A run may say how many rows it has, or how many tensors lie one after another
  // (generator/tensors/stored_rows).
  bool rows_of_run = false;
  bool batch_of_run = false;
  // A copy takes box_columns x box_heads (of packed heads) x box_rows; shared memory is swizzled by
  // rows of swizzle_bytes: 32, 64 or 128.
  int box_columns = 0;
  int box_heads = 0;
  int box_rows = 0;
  int swizzle_bytes = 128;

  friend bool operator==(const TensorMapSpec&, const TensorMapSpec&) = default;
};
struct TensorMapSizes {
  std::int64_t rows = 0;  // the most of a run, or of one that does not say how many
  std::int64_t heads = 0;
  std::int64_t batch = 0;
};

/// FwdParams: pointers and strides of q, k, v, o and lse; of blocks strides in bytes.
struct FwdArgument {
  DType k = {}, v = {};

  friend bool operator==(const FwdArgument&, const FwdArgument&) = default;
};

/// So many bytes of a part of the problem, whose file has the function that fills them in
/// (templates/host/argument.h makes these).
struct OwnArgument {
  std::uint32_t bytes = 0;
  /// `place` has what the launch decides. No allocation, no call to the GPU.
  void (*bind)(std::span<std::byte> place, const Tensors&, const RunMemory&) = nullptr;

  friend bool operator==(const OwnArgument&, const OwnArgument&) = default;
};

/// An address that is one of the run's tensors.
struct AddressArgument {
  const float* Tensors::*tensor = nullptr;

  friend bool operator==(const AddressArgument&, const AddressArgument&) = default;
};

/// An address in the workspace. In its place before: how many bytes from the start.
struct ScratchArgument {
  friend bool operator==(const ScratchArgument&, const ScratchArgument&) = default;
};

/// The address of a set of counters.
struct CountersArgument {
  friend bool operator==(const CountersArgument&, const CountersArgument&) = default;
};

/// One of the run's tensors as a step sees it that reads it from the workspace, where a step before
/// it wrote it in another form: `begin` bytes from the start, with strides in elements.
struct ScratchTensor {
  TensorMapSpec::Operand operand = TensorMapSpec::Operand::kQ;
  std::size_t begin = 0;
  std::int64_t stride_batch = 0, stride_row = 0, stride_head = 0;

  friend bool operator==(const ScratchTensor&, const ScratchTensor&) = default;
};

/// A field of a kernel's argument that each run fills in, from its tensors and memory.
/// runtime/bind_arguments.cpp is the one place that knows all kinds; what a part of a problem needs
/// is an OwnArgument. No kind has members that follow the sizes of a problem: such numbers wait in
/// the field's place in LaunchStep::params, so that launches of one kernel have the same fields
/// whatever their sizes.
struct ArgumentField {
  std::size_t offset = 0;  // in the argument
  std::variant<FwdArgument, OwnArgument, AddressArgument, TensorMapSpec, ScratchArgument,
               CountersArgument>
      value;

  friend bool operator==(const ArgumentField&, const ArgumentField&) = default;
};

/// One kernel launch.
struct LaunchStep {
  std::string kernel;  // extern "C" symbol in the cubin
  Dim3 grid, block;
  int smem_bytes = 0;  // dynamic
  // Programmatic dependent launch, from sm_90 on: blocks may start before the step ahead has ended,
  // and must wait before they read what it wrote: for its end (griddepcontrol.wait), or for what it
  // counts, where one of them waits for its end. Never the first step: it would overlap with
  // whatever the caller's stream holds, such as a run that still reads the same workspace.
  bool overlaps_previous = false;
  std::vector<std::byte> params;    // the kernel's one argument with all that the launch decides
  std::vector<ArgumentField> args;  // the fields of it that a run fills in
  std::vector<ScratchTensor> from_workspace{};  // in place of the run's, in all of `args`
};

/// A set of counters: 32-bit words in device memory, aligned to kCounterBytes. All but the word
/// kRunsCounter are zeros when a kernel starts and when it has ended. To that one a kernel adds 1
/// when it is done with the others: kernels that ended, modulo 2^32. Two kernels with the same set
/// must not run at the same time. runtime/counter_pool.h has them for the streams of a GPU.
inline constexpr std::size_t kCounterBytes = 32;
inline constexpr std::size_t kRunsCounter = 2;

/// All steps of a run, in stream order. No steps: nothing to do (seqlen_q or batch is 0).
struct Launch {
  std::vector<LaunchStep> steps;
  std::size_t workspace_bytes = 0;  // scratch: a run writes it before it reads it
  std::size_t steps_after = 0;      // steps after the config's own kernel
};

/// The step of the config's own kernel, of a launch that has steps.
inline std::size_t own_step(const Launch& launch) {
  return launch.steps.size() - 1 - launch.steps_after;
}

inline bool needs_counters(const LaunchStep& step) {
  return std::ranges::any_of(step.args, [](const ArgumentField& field) {
    return std::holds_alternative<CountersArgument>(field.value);
  });
}

/// How many steps need counters.
inline int counted_steps(const Launch& launch) {
  return static_cast<int>(std::ranges::count_if(launch.steps, needs_counters));
}

/// Device memory of a run in addition to its tensors: Launch::workspace_bytes of the caller's, and
/// a set of counters. Null where a launch needs none.
struct RunMemory {
  void* workspace = nullptr;
  void* counters = nullptr;

  friend bool operator==(const RunMemory&, const RunMemory&) = default;
};

/// Largest gridDim.x.
inline constexpr std::int64_t kMaxGridX = 2147483647;

/// Largest argument that a run copies to its stack. CUDA allows 4096.
inline constexpr std::size_t kMaxParamsBytes = 2048;

}  // namespace attnforge
