// problem_fields.h - the numeric fields of a Problem as a table: validate, parse and to_string all
// go by it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "attnforge/problem.h"

namespace attnforge {

struct IntegerField {
  std::string_view name;
  std::string_view allowed;  // for messages; says the same as `ok`
  bool is_size;              // always in the text; others only when they differ from the default
  bool (*ok)(std::int64_t);
  std::int64_t (*get)(const Problem&);
  void (*set)(Problem&, std::int64_t);  // value must be ok()
};

/// In the order of the text form.
std::span<const IntegerField> integer_fields();
const IntegerField& integer_field(std::string_view name);

/// Throws Error(kInvalidProblem) when `value` is not ok().
void check_field(const IntegerField& field, std::int64_t value);

/// What softcap and softmax_scale may be, for messages.
inline constexpr std::string_view kFactorAllowed = "0 or a number from 1e-20 to 1e20";

/// What density may be, for messages.
inline constexpr std::string_view
    kDensityAllowed = "0 (unknown, taken as 0.5) or a number from 1e-06 to 1";

/// What gradients= may be, for messages.
inline constexpr std::string_view kGradientsAllowed = "same (as q, k and v) or fp32";

/// Whether the products of sizes stay where 32-bit head and 64-bit element indices cannot overflow.
bool products_within_limits(const Problem& problem);

/// Whether gradients=fp32 changes anything: not where q, k and v are fp32.
bool has_wider_gradients(const Problem& problem);

/// The soft cap that kernels apply: softcap, or X where `score` is "X * tanhf(s / X)" and nothing
/// else; 0: none.
float effective_softcap(const Problem& problem);

}  // namespace attnforge
