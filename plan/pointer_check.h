// pointer_check.h - are the tensors of a run what the plan was made for? A few ORs when they are,
// an explanation when not.
#pragma once

#include <cstdint>

#include "attnforge/plan.h"

namespace attnforge {

/// Throws Error(kInvalidArgument) unless the words of problem.args, which are some, are there, and
/// no address of an array is null.
void check_code_arguments(const Problem& problem, const std::uint64_t* words);

class PointerCheck {
 public:
  PointerCheck() = default;
  explicit PointerCheck(const Problem& problem, std::size_t workspace_bytes);

  /// Throws Error(kInvalidArgument) naming the tensor, the value and what is required. Strides of
  /// dimensions of size 1 are never used and may be anything. No allocation when all is well.
  void operator()(const Problem& problem, const Tensors& tensors, const void* workspace) const {
    if (!fast(problem, tensors, workspace)) explain(problem, tensors, workspace);
  }

 private:
  bool fast(const Problem& problem, const Tensors& tensors, const void* workspace) const {
    const auto address = [](const void* pointer) {
      return reinterpret_cast<std::uintptr_t>(pointer);
    };
    const auto scaled = [](const Tensor& tensor, int element_bytes) {
      return static_cast<std::uintptr_t>(tensor.stride_batch | tensor.stride_row |
                                         tensor.stride_head) *
             element_bytes;
    };
    const Tensors& t = tensors;
    const std::uintptr_t bits = address(t.q.data) | address(t.k.data) | address(t.v.data) |
                                address(t.o.data) | scaled(t.q, bytes_q_) | scaled(t.k, bytes_k_) |
                                scaled(t.v, bytes_v_) | scaled(t.o, bytes_o_);
    const bool present = t.q.data != nullptr && t.k.data != nullptr && t.v.data != nullptr &&
                         t.o.data != nullptr;
    const bool lse_good = !needs_lse_ ||
                          (t.lse.data != nullptr && address(t.lse.data) % alignof(float) == 0);
    const bool workspace_good = workspace_bytes_ == 0 ||
                                (workspace != nullptr &&
                                 address(workspace) % kWorkspaceAlignment == 0);
    return present && (bits & misaligned_) == 0 && lse_good && workspace_good &&
           (!needs_rope_ || rope_good(t)) &&
           (problem.lengths == Lengths::kFixed || lengths_good(problem, t.lengths)) &&
           (!needs_pages_ || pages_good(t.pages)) && (!needs_mask_ || mask_good(t.block_mask)) &&
           (code_arguments_ == 0 || code_arguments_good(t.code_arguments)) &&
           (!needs_gradients_ || gradients_good(problem, t.gradients)) &&
           (!needs_sinks_ || (t.sinks != nullptr && address(t.sinks) % alignof(float) == 0));
  }
  bool gradients_good(const Problem& problem, const Gradients& g) const {
    std::uintptr_t bits = 0;
    bool present = true;
    const auto add = [&](const Tensor& tensor, DType dtype) {
      bits |= reinterpret_cast<std::uintptr_t>(tensor.data) |
              static_cast<std::uintptr_t>(tensor.stride_batch | tensor.stride_row |
                                          tensor.stride_head) *
                  static_cast<std::uintptr_t>(size_bytes(dtype));
      present &= tensor.data != nullptr;
    };
    add(g.dout, problem.dtype_o);
    add(g.dq, gradient_dtype(problem, problem.dtype_q));
    add(g.dk, gradient_dtype(problem, problem.dtype_k));
    add(g.dv, gradient_dtype(problem, problem.dtype_v));
    const bool dlse_good = !problem.dlse ||
                           (g.dlse.data != nullptr &&
                            reinterpret_cast<std::uintptr_t>(g.dlse.data) % alignof(float) == 0);
    const bool dsinks_good = !needs_sinks_ ||
                             (g.dsinks != nullptr &&
                              reinterpret_cast<std::uintptr_t>(g.dsinks) % alignof(float) == 0);
    return present && (bits & misaligned_) == 0 && dlse_good && dsinks_good;
  }
  bool code_arguments_good(const std::uint64_t* words) const {
    if (words == nullptr) return false;
    std::uint32_t null_words = 0;
    for (int i = 0; i < code_arguments_; ++i) null_words |= std::uint32_t{words[i] == 0} << i;
    bool gradients_good = true;
    for (int i = code_arguments_; i < code_arguments_ + code_gradients_; ++i)
      gradients_good &= words[i] != 0 && words[i] % alignof(float) == 0;
    return (null_words & code_arrays_) == 0 && gradients_good;
  }
  static bool lengths_good(const Problem& problem, const LengthArrays& lengths) {
    const auto bits = reinterpret_cast<std::uintptr_t>(lengths.q) |
                      reinterpret_cast<std::uintptr_t>(lengths.kv);
    const bool present = problem.lengths == Lengths::kUsed ||
                         (lengths.q != nullptr && (lengths.kv != nullptr || has_pages(problem)));
    const Tokens most = total_tokens(problem);
    return present && bits % alignof(int) == 0 && lengths.tokens_q >= 0 &&
           lengths.tokens_q <= most.q && lengths.tokens_kv >= 0 && lengths.tokens_kv <= most.kv;
  }
  static bool pages_good(const PageTable& pages) {
    return pages.table != nullptr &&
           reinterpret_cast<std::uintptr_t>(pages.table) % alignof(int) == 0 &&
           pages.num_pages > 0 && pages.num_pages <= kMostPages;
  }
  bool mask_good(const BlockMaskRef& mask) const {
    const auto address = [](const void* pointer) {
      return reinterpret_cast<std::uintptr_t>(pointer);
    };
    const bool lists = mask.row_begin != nullptr && mask.columns != nullptr &&
                       (address(mask.row_begin) | address(mask.columns)) % alignof(int) == 0;
    return lists && (!needs_mask_bits_ || (mask.bits != nullptr && mask.bit_blocks != nullptr &&
                                           address(mask.bits) % kTableAlignment == 0 &&
                                           address(mask.bit_blocks) % alignof(int) == 0));
  }
  /// Tables that no plan could mind; explain() looks closer.
  bool rope_good(const Tensors& t) const {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    const auto address = reinterpret_cast<std::uintptr_t>(t.rope.cos) |
                         reinterpret_cast<std::uintptr_t>(t.rope.sin);
    return t.rope.cos != nullptr && t.rope.sin != nullptr && address % kTableAlignment == 0 &&
           t.rope.offset >= rope_before_ && t.rope.rows >= 0 && t.rope.rows <= kMost &&
           t.rope.offset <= t.rope.rows - rope_keys_;
  }
  void explain(const Problem& problem, const Tensors& tensors, const void* workspace) const;

  static constexpr std::uintptr_t kWorkspaceAlignment = 256;
  static constexpr std::uintptr_t kTableAlignment = 16;
  static constexpr std::int64_t kMostPages = 2147483647;
  std::uintptr_t
      misaligned_ = 0;  // low bits that must be 0 in every address and every stride in bytes
  std::size_t workspace_bytes_ = 0;
  std::uint8_t bytes_q_ = 2, bytes_k_ = 2, bytes_v_ = 2, bytes_o_ = 2;
  bool needs_lse_ = false, needs_rope_ = false, needs_mask_ = false, needs_mask_bits_ = false,
       needs_sinks_ = false, needs_pages_ = false, needs_gradients_ = false;
  std::uint8_t code_arguments_ = 0, code_gradients_ = 0;  // words, and those after them
  std::uint32_t code_arrays_ = 0;                         // bit i: argument i is one
  std::int32_t rope_before_ = 0, rope_keys_ = 0;  // rows taken before and from rope_offset on
};

}  // namespace attnforge
