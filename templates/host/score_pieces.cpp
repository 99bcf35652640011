// score_pieces.cpp - the Score and the Slope of a shape. Parts may put their own around them.
#include "templates/host/score_pieces.h"

namespace attnforge {

std::vector<Piece> pieces_of(const Shape& shape) {
  std::vector<Piece> pieces;
  if (shape.softcap) pieces.push_back({"parts/softcap/score.cuh", "Score", "SoftcapScore"});
  return pieces;
}

Piece slope_of(const Shape& shape) {
  if (shape.softcap) return {"parts/softcap/slope.cuh", "Slope", "SoftcapSlope"};
  return {"backward/plain_slope.cuh", "Slope", "PlainSlope"};
}

}  // namespace attnforge
