// params.h - the arguments of the user's own code, after a family's own.
#pragma once

#include "base.cuh"

namespace attnforge {

/// A word for each argument, in the order of the problem's args: an address, or a number in the low
/// 4 bytes. kWords is even, at least 2.
template <int kWords>
struct alignas(16) CodeParams {
  u64 words[kWords];
};

/// The argument of a kernel that takes a Params without code.
template <class Params, int kWords>
struct WithCode : Params {
  CodeParams<kWords> code;
};

}  // namespace attnforge
