// pointer_check.h - are the tensors of a run what the plan was made for? A few ORs when they are,
// an explanation when not.
#pragma once

#include <cstdint>
#include <memory>

#include "attnforge/plan.h"

namespace attnforge {

class PointerCheck {
 public:
  PointerCheck() = default;
  explicit PointerCheck(const Problem& problem);

  /// Throws Error(kInvalidArgument) naming the tensor, the value and what is required. Strides of
  /// dimensions of size 1 are never used and may be anything. No allocation when all is well.
  /// The problem is the one of the constructor: a plan has it already, as it has workspace_bytes.
  void operator()(const Problem& problem, const Tensors& tensors, const void* workspace,
                  std::size_t workspace_bytes) const {
    if (!fast(problem, tensors, workspace, workspace_bytes))
      explain(problem, tensors, workspace, workspace_bytes);
  }

 private:
  bool fast(const Problem& problem, const Tensors& tensors, const void* workspace,
            std::size_t workspace_bytes) const {
    const auto address = [](const void* pointer) {
      return reinterpret_cast<std::uintptr_t>(pointer);
    };
    const auto scaled = [](const Tensor& tensor, int element_bits) {
      return static_cast<std::uintptr_t>(tensor.stride_batch | tensor.stride_row |
                                         tensor.stride_head) *
             element_bits;
    };
    const Tensors& t = tensors;
    const std::uintptr_t addresses = address(t.q.data) | address(t.k.data) | address(t.v.data) |
                                     address(t.o.data);
    const std::uintptr_t stride_bits = scaled(t.q, bits_q_) | scaled(t.k, bits_k_) |
                                       scaled(t.v, bits_v_) | scaled(t.o, bits_o_);
    const bool present = !attends_ || (t.q.data != nullptr && t.k.data != nullptr &&
                                       t.v.data != nullptr && t.o.data != nullptr);
    const bool lse_good = !needs_lse_ ||
                          (t.lse.data != nullptr && address(t.lse.data) % alignof(float) == 0);
    const bool workspace_good = workspace_bytes == 0 ||
                                (workspace != nullptr &&
                                 address(workspace) % kWorkspaceAlignment == 0);
    return present && ((addresses * 8 | stride_bits) & misaligned_) == 0 && lse_good &&
           workspace_good && (parts_ == 0 || parts_good(problem, t));
  }
  /// Checks what only some problems have. As fast, but not in line.
  bool parts_good(const Problem& problem, const Tensors& tensors) const;
  void explain(const Problem& problem, const Tensors& tensors, const void* workspace,
               std::size_t workspace_bytes) const;

  static constexpr std::uintptr_t kWorkspaceAlignment = 256;
  // Low bits that must be 0 in every address and every stride in bits.
  std::uint8_t misaligned_ = 0;
  std::uint8_t bits_q_ = 0, bits_k_ = 0, bits_v_ = 0, bits_o_ = 0;
  bool attends_ = true;  // else parts look at all tensors
  bool needs_lse_ = false;
  std::uint64_t parts_ = 0;                 // bit i: the problem has problem_parts()[i]
  std::unique_ptr<std::uint64_t[]> known_;  // ProblemPart::known of each; null: nothing is known
};

}  // namespace attnforge
