// score_pieces.h - what a shape makes of scores, as pieces.
#pragma once

#include <vector>

#include "templates/host/kernel_source.h"

namespace attnforge {

/// Of all product families.
std::vector<Piece> pieces_of(const Shape& shape);

/// Of backward kernels beside these: the derivative of the Score.
Piece slope_of(const Shape& shape);

}  // namespace attnforge
