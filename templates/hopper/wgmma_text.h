// wgmma_text.h - the wgmma instructions of a kernel as generated lines of CUDA C++.
#pragma once

#include <string>

namespace attnforge {

/// The definition of Wgmma<dtype, n> (templates/ptx/wgmma.cuh says what it does). `dtype`: kFp16,
/// kBf16 or kE4m3; `n`: a multiple of 8 up to 256.
std::string wgmma_text(int dtype, int n);

/// A product of 16 * steps elements each: which of the structs of templates/ptx/wgmma.cuh.
struct WgmmaProduct {
  enum Form { kKK, kMnK, kRegsMn } form;
  int n, steps;
};

/// Its definition.
std::string wgmma_product_text(int dtype, const WgmmaProduct& product);

}  // namespace attnforge
