// tensor_elements.h - how many elements the tensors of a problem have.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"

namespace attnforge {

/// Far beyond any memory, and its bytes times a few still fit in 64 bits: 2^48.
inline constexpr double kMostElements = 281474976710656.0;

inline double elements(std::int64_t tokens, std::int64_t num_heads, std::int64_t head_dim) {
  return static_cast<double>(tokens) * static_cast<double>(num_heads) *
         static_cast<double>(head_dim);
}

inline double elements_q(const Problem& p) {
  return elements(total_tokens(p).q, p.num_heads_q, p.head_dim);
}
inline double elements_k(const Problem& p) {
  return elements(total_tokens(p).kv, p.num_heads_kv, p.head_dim);
}
inline double elements_v(const Problem& p) {
  return elements(total_tokens(p).kv, p.num_heads_kv, p.head_dim_v);
}
inline double elements_o(const Problem& p) {
  return elements(total_tokens(p).q, p.num_heads_q, p.head_dim_v);
}

}  // namespace attnforge
