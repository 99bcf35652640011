// operands.h - the tensors of a run as a table: whatever allocates, fills, uploads, checks or
// counts them walks it, so that a tensor which comes with an optional part is named here and
// nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

struct Operand {
  enum class Role {
    kInput,  // any numbers do
    kTable,  // its content means something: rope's tables, lengths, masks, arrays of the user's,
             // the lse that backward reads
    kOutput,
  };
  std::string_view name;  // "q"; for messages
  Role role = Role::kInput;
  DType dtype = DType::kFp32;  // of inputs and outputs
  int element_bytes = 4;
  std::int64_t elements = 0;  // contiguous; where it may be longer, the least that will do
  std::int64_t row_elements = 1;
  bool may_be_longer = false;
  std::int64_t key_elements = 0;  // that lie in rows of keys; the others in rows of queries
  bool added_to = false;          // of an output: a run reads it too
  bool any_rows = false;          // any number of whole rows will do: pools of pages
  bool of_heads = false;          // its elements lie in no rows: a run leaves none of an output out

  /// Sets where it lies in a run. kPackedQkv's one tensor is q, k and v.
  void (*bind)(const Problem&, void* data, Tensors&) = nullptr;
  /// Its content in host memory, and room for so many bytes.
  std::span<std::byte> (*in_host)(HostTensors&) = nullptr;
  void (*resize)(HostTensors&, std::size_t bytes) = nullptr;

  /// The same to read.
  std::span<const std::byte> content(const HostTensors& host) const {
    return in_host(const_cast<HostTensors&>(host));
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements) * element_bytes; }
};

/// Those that a valid problem has. Inputs first, then tables, then outputs.
std::vector<Operand> operands(const Problem& problem);

/// contiguous_tensors(problem) at these addresses, one for each operand, with the parts that are no
/// pointers (rows and offset of rope's tables, how many pages a pool has, numbers among the
/// arguments of code) as `host` has them. The result points to `code_words`.
Tensors bound_tensors(const Problem& problem, std::span<const Operand> list,
                      std::span<void* const> addresses, const HostTensors& host,
                      std::vector<std::uint64_t>& code_words);

/// An array of problem.dargs, in their order: its name and size, and which of the words of a run is
/// the address of its gradient.
struct Darg {
  std::string name;
  std::int64_t elements = 0;
  std::size_t word = 0;
};
std::vector<Darg> dargs_of(const Problem& problem);

/// Where a run adds to its gradient.
float* address_of(const Darg& darg, const Tensors& tensors);

/// The run with other addresses for these, one for each. It points to `words`.
Tensors with_dargs_at(const Tensors& tensors, std::span<const Darg> dargs,
                      std::span<float* const> addresses, std::vector<std::uint64_t>& words);

/// Sets code_arrays and code_words for a run on made-up inputs: floats random of a few small
/// values, integers that are labels (generator/pair_terms) numbers of documents, others zeros (any
/// of them may be a place in another array), bools true, numbers as the problem's args say. Nothing
/// without args.
void set_code_arguments(const Problem& problem, HostTensors& host, std::uint64_t seed);

/// Throws Error(kInvalidArgument) naming the first operand that does not have its size in `host`.
void check_sizes(const Problem& problem, std::span<const Operand> list, const HostTensors& host);

}  // namespace attnforge
