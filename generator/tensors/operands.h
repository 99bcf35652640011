// operands.h - the tensors of a run as a table: whatever allocates, fills, uploads, checks or
// counts them walks it, so that a tensor which comes with an optional part is named here and
// nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

struct Operand {
  enum class Role {
    kInput,  // any numbers do
    kTable,  // its content means something, as that of lengths and masks does
    kOutput,
  };
  std::string_view name;  // "q"; for messages
  Role role = Role::kInput;
  DType dtype = DType::kFp32;  // of inputs and outputs
  int bits_of_32 = 32 * 32;    // elements
  std::int64_t elements = 0;   // contiguous; where it may be longer, the least that will do
  std::int64_t row_elements = 1;
  bool may_be_longer = false;
  std::int64_t key_elements = 0;  // that lie in rows of keys; the others in rows of queries
  bool added_to = false;          // of an output: a run reads it too
  bool any_rows = false;          // any number of whole rows will do: pools of pages
  bool of_heads = false;          // its elements lie in no rows: a run leaves none of an output out
  DType scales = DType::kFp32;    // of scales: the format of what they multiply

  /// Sets where it lies in a run. kPackedQkv's one tensor is q, k and v.
  void (*bind)(const Problem&, void* data, Tensors&) = nullptr;
  /// Its content in host memory, and a way to make that `bytes` large.
  std::span<std::byte> (*in_host)(HostTensors&) = nullptr;
  void (*resize)(HostTensors&, std::size_t bytes) = nullptr;

  /// The bytes to read.
  std::span<const std::byte> content(const HostTensors& host) const {
    return in_host(const_cast<HostTensors&>(host));
  }
  std::size_t bytes_of_elements(std::int64_t count) const {
    return (static_cast<std::size_t>(count) * bits_of_32 + 255) / 256;
  }
  std::size_t bytes() const { return bytes_of_elements(elements); }
  std::size_t row_bytes() const { return bytes_of_elements(row_elements); }
};

/// Those that a valid problem has. Inputs first, then tables, then outputs.
std::vector<Operand> operands(const Problem& problem);

/// Mean and deviation of the random numbers that inputs are made of, so that values are nearly
/// standard normal: numbers of 8 and 4 bits fill their range where scales make values of them.
struct RandomRange {
  float mean = 0, deviation = 1;
};
RandomRange random_range(const Problem& problem, const Operand& input);

// Whether a run of the problem reads, or writes, the operand of that name: "o" and "lse" may be
// either.
bool reads(const Problem& problem, std::string_view name);
bool writes(const Problem& problem, std::string_view name);

/// contiguous_tensors(problem) at these addresses, one for each operand, with what is no pointer
/// (how many pages a pool has, numbers among the arguments of code) as `host` has it. The result
/// points to `words`.
Tensors bound_tensors(const Problem& problem, std::span<const Operand> list,
                      std::span<void* const> addresses, const HostTensors& host,
                      std::vector<std::uint64_t>& words);

/// Rows that the host's tensor has; those of a tensor that is not on the host are made up.
std::int64_t rows_in(const Operand& operand, const HostTensors& host);

/// Throws Error(kInvalidArgument) naming the first operand that does not have its size in `host`.
void check_sizes(const Problem& problem, std::span<const Operand> list, const HostTensors& host);

// ---- For the parts of problems (generator/parts/list) ----

Operand operand_of_o(Operand::Role role);
Operand operand_of_lse(Operand::Role role);
/// q, k and v, or three like them, next to one another in each row of one tensor.
void bind_packed(const Problem& problem, DType dtype, void* data, Tensor& q, Tensor& k, Tensor& v);

}  // namespace attnforge
