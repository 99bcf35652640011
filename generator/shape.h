// shape.h - Problem to Shape: the one function that says what of a problem is compiled in.
#pragma once

#include <string>

#include "attnforge/problem.h"
#include "templates/shape.h"

namespace attnforge {

Shape shape_of(const Problem& problem);

/// Whether a query's position says which keys it does not see.
bool has_window(const Shape& shape);
/// Whether keys are looked up in a table.
bool looks_keys_up(const Shape& shape);
/// Whether later queries see more keys than the first ones: heavy query tiles, which come first.
bool later_see_more(const Shape& shape);
/// Whether these see all that earlier ones see as well: no window.
bool see_ever_more(const Shape& shape);
/// The shape of a kernel that reads windows at run time: one for all of them.
Shape without_bounds(Shape shape);

/// Whether sequences are as long as the problem says.
bool has_fixed_lengths(const Problem& problem);
/// The soft cap that kernels apply: softcap, or X where `score` is "X * tanhf(s / X)" and nothing
/// else; 0: none.
float effective_softcap(const Problem& problem);

bool operator==(const Shape& a, const Shape& b);

/// "{.dtype = 2, .dtype_k = 2, ...}": as a C++ initialiser for the generated source.
std::string initializer(const Shape& shape);

}  // namespace attnforge
