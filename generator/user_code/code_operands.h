// code_operands.h - the arguments of the user's texts in a run: made-up ones, those of dargs among
// them, and whether they are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// An array of problem.dargs, in their order: its name and size, which of the words of a run is the
/// address of its gradient, and whether that is written, in `dtype`; else it is fp32 and added to.
struct Darg {
  std::string name;
  std::int64_t elements = 0;
  std::size_t word = 0;
  bool written = false;
  DType dtype = DType::kFp32;
};
std::vector<Darg> dargs_of(const Problem& problem);

/// Where its gradient is; of another dtype than fp32 it is no floats.
float* address_of(const Darg& darg, const Tensors& tensors);
/// Its gradient as floats, from host memory at `values`.
std::vector<float> floats_of(const Darg& darg, const void* values);

/// The run with other addresses for these, one for each. It points to `words`.
Tensors with_dargs_at(const Tensors& tensors, std::span<const Darg> dargs,
                      std::span<float* const> addresses, std::vector<std::uint64_t>& words);

/// Sets code_arrays and code_words for a run on made-up inputs: floats random of a few small
/// values, integers that are labels (generator/user_code/pair_terms) numbers of documents, others
/// zeros (any of them may be a place in another array), bools true, numbers as the problem's args
/// say. Nothing without args.
void set_code_arguments(const Problem& problem, HostTensors& host, std::uint64_t seed);

/// Throws Error(kInvalidArgument) unless the words of problem.args, which are some, are there, and
/// no address of an array is null.
void check_code_arguments(const Problem& problem, const std::uint64_t* words);

}  // namespace attnforge
