// wgmma_whole.cuh - products of wgmma over all of their depth, as gradients want them.
#pragma once

#include "ptx/wgmma.cuh"

namespace attnforge {

// Whole products of 16 * kSteps elements each, in one statement with their fence: the compiler
// takes time for each register of each statement, and one a product compiles a tenth faster than
// one a step. Rows of what is K-major lie in chunks of 64 columns, kAChunk and kBChunk apart; steps
// of what is MN-major are kAStep and kBStep apart. All in units of descriptors, 16 bytes.

/// d = a * b, both K-major: scores.
///   set<kAChunk, kBChunk>(d, a, b)
template <int kDtype, int kN, int kSteps>
struct WgmmaKK;

/// d = a * b, a MN-major, b K-major: gradients of q.
///   set<kAStep, kBChunk>(d, a, b)
template <int kDtype, int kN, int kSteps>
struct WgmmaMnK;

/// d += a * b, a in registers, b MN-major: gradients of k and v.
///   add<kBStep>(d, a, b)
template <int kDtype, int kN, int kSteps>
struct WgmmaRegsMn;

}  // namespace attnforge
