// optional.cuh - the names of what only some problems need. Kernels use them where their config has
// the part; the generated entry includes the header that defines them then, and only then. So an
// edit of a part leaves the source of all other kernels as it is.
#pragma once

namespace attnforge {

/// tile/rope.cuh
template <int kDtype, int kRope, int kRopeDim, class Layout, int kInFlight, bool kAhead>
struct RopeTile;
/// tile/rope_f32.cuh
template <int kRope, int kRopeDim, int kRowBytes>
struct RopeTileF32;

}  // namespace attnforge
