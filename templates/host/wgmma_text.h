// wgmma_text.h - the wgmma instructions of a kernel as generated lines of CUDA C++.
#pragma once

#include <string>

namespace attnforge {

/// The forms of a product that a kernel uses; the text of one that does not know the last is as it
/// was before that.
enum class WgmmaForms { kForward, kTransposedA };

/// The definition of Wgmma<dtype, n> (templates/ptx/wgmma.cuh says what it does). `dtype`: kFp16 or
/// kBf16; `n`: a multiple of 8 up to 256.
std::string wgmma_text(int dtype, int n, WgmmaForms forms = WgmmaForms::kForward);

}  // namespace attnforge
