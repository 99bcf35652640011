// fake_symbols.cpp - the functions of the fake driver for programs that are linked to libcuda
// instead of asking it for each: those that the examples call.
#include <cuda.h>

#include <cstdint>

namespace {

template <class... Arguments>
CUresult call(const char* name, Arguments... arguments) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  const CUresult found = cuGetProcAddress_v2(name, &function, CUDA_VERSION, 0, &status);
  if (found != CUDA_SUCCESS) return found;
  return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) { return call("cuInit", flags); }
CUresult cuGetErrorString(CUresult error, const char** text) {
  return call("cuGetErrorString", error, text);
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return call("cuDeviceGet", device, ordinal); }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", context, device);
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return call("cuDevicePrimaryCtxRelease", device);
}
CUresult cuCtxSetCurrent(CUcontext context) { return call("cuCtxSetCurrent", context); }
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  return call("cuMemAlloc", address, bytes);
}
CUresult cuMemFree(CUdeviceptr address) { return call("cuMemFree", address); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return call("cuMemcpyHtoD", to, from, bytes);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return call("cuMemcpyDtoH", to, from, bytes);
}
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return call("cuStreamCreate", stream, flags);
}
CUresult cuStreamDestroy(CUstream stream) { return call("cuStreamDestroy", stream); }
CUresult cuStreamSynchronize(CUstream stream) { return call("cuStreamSynchronize", stream); }
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return call("cuStreamBeginCapture", stream, mode);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call("cuStreamEndCapture", stream, graph);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                     unsigned long long flags) {
  return call("cuGraphInstantiateWithFlags", executable, graph, flags);
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return call("cuGraphLaunch", executable, stream);
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call("cuGraphExecDestroy", executable);
}
CUresult cuGraphDestroy(CUgraph graph) { return call("cuGraphDestroy", graph); }

}  // extern "C"
