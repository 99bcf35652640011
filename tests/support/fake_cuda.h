// fake_cuda.h - counters and switches of the fake driver, by dlsym: the tests see it through
// libcuda.so.1 as the library does.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace attnforge::test {

/// The arguments of a cuTensorMapEncodeTiled.
struct FakeEncode {
  CUtensorMapDataType dtype;
  cuuint32_t rank;
  const void* address;
  cuuint64_t extents[5];
  cuuint64_t strides_bytes[4];
  cuuint32_t box[5];
  cuuint32_t steps[5];
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapFloatOOBfill fill;
};

/// What the fake driver was asked to do since reset(). Two GPUs: 0 is an H200, 1 an H100 PCIe.
struct FakeCuda {
  void (*reset)();
  int (*inits)();  // cuInit, of the process
  int (*loads)();  // successful cuLibraryLoadData
  int (*unloads)();
  int (*launches)();
  /// The pointer that last_argument() answers with is at `offset` of a launch's argument; 0 after
  /// reset(), which is q.
  void (*watch)(std::size_t offset);
  void* (*last_argument)();
  CUcontext (*last_context)();  // current when the last launch came
  CUstream (*last_stream)();
  unsigned (*last_grid_x)();
  int (*overlapping_launches)();   // with programmatic stream serialization
  void (*fail_loads)(int count);   // the next so many loads answer CUDA_ERROR_NO_BINARY_FOR_GPU
  CUcontext (*other_context)();    // of GPU 0, not the primary one
  std::size_t (*device_bytes)();   // allocated now
  void (*slow_copies)(bool slow);  // cuStreamQuery answers CUDA_ERROR_NOT_READY
  int (*encodes)();                // tensor maps encoded
  /// The arguments of the index-th encode, of the first 8 since reset(). The map that it gave is
  /// 128 bytes of index + 1.
  FakeEncode (*encode)(int index);
};

/// Throws std::runtime_error if libcuda.so.1 of this process is not the fake.
const FakeCuda& fake_cuda();

}  // namespace attnforge::test
