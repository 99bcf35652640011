// nvtx_program.cpp - makes two nested ranges; run by nvtx_test with and without a profiler.
#include <cstdio>

#include "runtime/nvtx.h"

int main() {
  const attnforge::NvtxRange plan("attnforge plan");
  { const attnforge::NvtxRange compile("attnforge compile", "fwd_naive_fp32"); }
  std::printf("%s\n", attnforge::kNvtxActive ? "active" : "inactive");
}
