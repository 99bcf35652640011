// cubin.h - machine code of one kernel and what the compiler said about it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace attnforge {

/// What the assembler said. Several functions in one cubin have the largest registers, stack and
/// shared memory of any, and all spills together.
struct KernelResources {
  int registers = 0;  // per thread
  int smem_static_bytes = 0;
  int stack_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  bool wgmma_serialized = false;  // ptxas C7510 and its kin
};

struct Cubin : KernelResources {
  std::vector<std::byte> bytes;
  std::map<std::string, KernelResources, std::less<>> kernels;  // each alone; not of stored code
  std::string arch;                                             // "90a"
  std::string source_digest;                                    // digest(Source)
  std::string nvrtc;                                            // "13.0" and its build id
  double compile_ms = 0;
  std::string
      log;  // remarks of compiler and assembler, without the ones read into the fields above
};

}  // namespace attnforge
