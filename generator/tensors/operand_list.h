// operand_list.h - how a part of a problem adds its tensors to the table of a run's operands.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"
#include "generator/tensors/operands.h"

namespace attnforge {

namespace detail {

template <auto kMember>
std::span<std::byte> in_host(HostTensors& host) {
  return std::as_writable_bytes(std::span(host.*kMember));
}

template <auto kMember>
void resize_in_host(HostTensors& host, std::size_t bytes) {
  auto& vector = host.*kMember;
  vector.resize(bytes / sizeof(vector[0]));
}

template <auto... kPath>
void bind_at(const Problem&, void* data, Tensors& tensors) {
  auto& address = (tensors.*....*kPath);
  address = static_cast<std::remove_reference_t<decltype(address)>>(data);
}

}  // namespace detail

/// An operand with the host's vector kMember; OperandList adds the sizes. A run has its address
/// where the members kPath of Tensors lead to, or where `bind` puts it.
template <auto kMember, auto... kPath>
Operand operand(std::string_view name, Operand::Role role,
                void (*bind)(const Problem&, void*, Tensors&) = detail::bind_at<kPath...>) {
  return {.name = name,
          .role = role,
          .bind = bind,
          .in_host = &detail::in_host<kMember>,
          .resize = &detail::resize_in_host<kMember>};
}

class OperandList {
 public:
  explicit OperandList(const Problem& problem) : problem(problem), tokens(total_tokens(problem)) {}

  /// The operand is that of the list, until another one is added.
  Operand& add(Operand operand, DType dtype, std::int64_t rows, std::int64_t row_elements) {
    operand.dtype = dtype;
    operand.bits_of_32 = format_of(dtype).bits_of_32();
    operand.elements = rows * row_elements;
    operand.row_elements = row_elements;
    return list_.emplace_back(operand);
  }
  /// Words of 32 bits, fp32 or integers: of those the dtype is only right about their size.
  Operand& add_words(Operand operand, std::int64_t rows, std::int64_t row_elements = 1) {
    return add(operand, DType::kFp32, rows, row_elements);
  }
  /// Adds rows of row_elements elements: one row or more.
  void add_longer(Operand operand, std::int64_t row_elements) {
    add_words(operand, 1, row_elements).may_be_longer = true;
  }

  std::span<Operand> list() { return list_; }
  /// Inputs, then tables, then outputs.
  std::vector<Operand> take() {
    std::ranges::stable_sort(list_, {}, &Operand::role);
    return std::move(list_);
  }

  const Problem& problem;
  const Tokens tokens;  // of the problem

 private:
  std::vector<Operand> list_;
};

}  // namespace attnforge
