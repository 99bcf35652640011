// fake_driver.cpp - stands in for libcuda.so.1 while entry points are resolved: has every function
// but the one that $FAKE_DRIVER_LACKS names.
#include <cuda.h>

#include <cstdlib>
#include <cstring>

namespace {

// Of the type of cuInit, the one that is called.
CUresult any_function(unsigned) { return CUDA_ERROR_NO_DEVICE; }

}  // namespace

#undef cuGetProcAddress
extern "C" CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                        cuuint64_t, CUdriverProcAddressQueryResult* status) {
  const char* lacking = std::getenv("FAKE_DRIVER_LACKS");
  if (version < 2000 || (lacking != nullptr && std::strcmp(symbol, lacking) == 0)) {
    *function = nullptr;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
  }
  *function = reinterpret_cast<void*>(any_function);
  *status = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}
