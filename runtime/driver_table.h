// driver_table.h - the driver's entry points that attnforge calls, one pointer each. A new one is
// one more line here.
#pragma once

#include <cudaTypedefs.h>

#include <string>

namespace attnforge {

// Name and the CUDA version that introduced the ABI called here. The version picks both the
// pointer's type and the symbol that the driver hands out, so that newer headers or drivers, which
// redefine some names with other parameters (cuCtxGetDevice and cuCtxSynchronize in 13.0), change
// nothing.
#define ATTNFORGE_DRIVER_FUNCTIONS(X)         \
  X(cuInit, 2000)                             \
  X(cuDriverGetVersion, 2020)                 \
  X(cuGetErrorName, 6000)                     \
  X(cuGetErrorString, 6000)                   \
  X(cuDeviceGet, 2000)                        \
  X(cuDeviceGetCount, 2000)                   \
  X(cuDeviceGetName, 2000)                    \
  X(cuDeviceGetUuid, 11040)                   \
  X(cuDeviceGetAttribute, 2000)               \
  X(cuDeviceTotalMem, 3020)                   \
  X(cuDevicePrimaryCtxRetain, 7000)           \
  X(cuDevicePrimaryCtxRelease, 11000)         \
  X(cuCtxGetCurrent, 4000)                    \
  X(cuCtxGetDevice, 2000)                     \
  X(cuCtxPushCurrent, 4000)                   \
  X(cuCtxPopCurrent, 4000)                    \
  X(cuCtxSynchronize, 2000)                   \
  X(cuLibraryLoadData, 12000)                 \
  X(cuLibraryUnload, 12000)                   \
  X(cuLibraryGetKernel, 12000)                \
  X(cuKernelGetFunction, 12000)               \
  X(cuFuncGetAttribute, 2020)                 \
  X(cuFuncSetAttribute, 9000)                 \
  X(cuLaunchKernel, 4000)                     \
  X(cuLaunchKernelEx, 11060)                  \
  X(cuTensorMapEncodeTiled, 12000)            \
  X(cuMemAlloc, 3020)                         \
  X(cuMemFree, 3020)                          \
  X(cuMemGetInfo, 3020)                       \
  X(cuMemHostAlloc, 2020)                     \
  X(cuMemFreeHost, 2000)                      \
  X(cuMemcpyHtoD, 3020)                       \
  X(cuMemcpyDtoH, 3020)                       \
  X(cuMemcpyDtoHAsync, 3020)                  \
  X(cuMemsetD8Async, 3020)                    \
  X(cuMemsetD32Async, 3020)                   \
  X(cuStreamCreate, 2000)                     \
  X(cuStreamDestroy, 4000)                    \
  X(cuStreamSynchronize, 2000)                \
  X(cuStreamBeginCapture, 10010)              \
  X(cuStreamEndCapture, 10000)                \
  X(cuStreamIsCapturing, 10000)               \
  X(cuStreamGetId, 12000)                     \
  X(cuStreamQuery, 2000)                      \
  X(cuThreadExchangeStreamCaptureMode, 10010) \
  X(cuEventCreate, 2000)                      \
  X(cuEventDestroy, 4000)                     \
  X(cuEventRecord, 2000)                      \
  X(cuEventQuery, 2000)                       \
  X(cuEventSynchronize, 2000)                 \
  X(cuEventElapsedTime, 2000)                 \
  X(cuGraphInstantiateWithFlags, 11040)       \
  X(cuGraphLaunch, 10000)                     \
  X(cuGraphExecDestroy, 10000)                \
  X(cuGraphDestroy, 10000)

// Null with a driver older than the version.
#define ATTNFORGE_OPTIONAL_DRIVER_FUNCTIONS(X) \
  X(cuFuncLoad, 12040)                         \
  X(cuFuncGetParamInfo, 12040)

struct Driver {
#define ATTNFORGE_DRIVER_POINTER(name, version) PFN_##name##_v##version name = nullptr;
  ATTNFORGE_DRIVER_FUNCTIONS(ATTNFORGE_DRIVER_POINTER)
  ATTNFORGE_OPTIONAL_DRIVER_FUNCTIONS(ATTNFORGE_DRIVER_POINTER)
#undef ATTNFORGE_DRIVER_POINTER
};

/// Opens `library` and fills in the pointers, without cuInit. Returns "" or why it is not a usable
/// driver and what to do. The library stays open. driver() is this for libcuda.so.1, once a
/// process.
std::string open_driver(const char* library, Driver& driver);

}  // namespace attnforge
