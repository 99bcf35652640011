// assembly_info.h - how a kernel was put together of pieces, for people: what inspect() shows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attnforge/cxx20.h"

namespace attnforge {

/// A piece that is not the dense one of its slot.
struct PieceInfo {
  std::string slot{};                  // "walk"
  std::string type{};                  // "SplitWalk<DensePieces<kConfig>::Walk, Splits>"
  std::string header{};                // "parts/splits/walk.cuh"
  std::vector<std::string> changes{};  // by which parts, in their order: "splits wraps"; empty: the
                                       // family starts with it
};

/// A kernel other than the config's own.
struct StepInfo {
  std::string kernel{};
  std::string part{};  // whose it is
  bool after = false;  // the config's own kernel; else before it
};

/// What a part has in the kernel's argument.
struct ArgumentInfo {
  std::string part{};  // the first: the family's own struct
  std::size_t bytes = 0;
};

/// Empty where a family's kernels take no pieces.
struct AssemblyInfo {
  std::string base{};               // where the dense pieces are: "DenseTmaPieces"
  std::vector<PieceInfo> pieces{};  // in the order of their last changes
  std::vector<StepInfo> steps{};
  std::vector<ArgumentInfo> argument{};
};

}  // namespace attnforge
