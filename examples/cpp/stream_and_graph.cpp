// stream_and_graph.cpp - a plan on a stream of your own, and captured in a CUDA graph that is
// replayed with new inputs.
//
// Streams and graphs are the CUDA driver's here. Those of the CUDA runtime are the same: pass a
// cudaStream_t to Plan::run, capture with cudaStreamBeginCapture.
#include <attnforge/device_memory.h>
#include <attnforge/host_tensors.h>
#include <attnforge/plan.h>
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace attnforge;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* why = "unknown error";
  cuGetErrorString(result, &why);
  throw std::runtime_error(std::string(what) + ": " + why);
}

constexpr int kLayers = 2, kSteps = 3;
constexpr std::size_t kElements = std::size_t{512} * 8 * 64;  // of each tensor below

/// Every element becomes `value`; bf16 is the upper half of a float.
void fill(DeviceBuffer& tensor, float value) {
  std::vector<std::uint16_t> host(kElements);
  const std::vector<float> values(kElements, value);
  values_from_float(DType::kBf16, values.data(), kElements, host.data());
  tensor.upload(host.data(), tensor.size_bytes());
}

float first_of(const DeviceBuffer& tensor) {
  std::uint16_t first = 0;
  float value = 0;
  tensor.download(&first, sizeof first);
  values_to_float(DType::kBf16, &first, 1, &value);
  return value;
}

void attend() {
  // ---- 1. GPU 0, by the context that the CUDA runtime and frameworks use too ----
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Device device;
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_DEFAULT), "cuStreamCreate");  // waits for uploads

  // ---- 2. A plan before any capture: this may compile, which a capture does not allow ----
  const Problem problem = parse_problem("fwd bf16 batch=1 num_heads=8 seqlen=512 head_dim=64");
  const Plan plan = make_plan(problem, device);
  std::printf("%s\n", plan.config().c_str());

  // ---- 3. Tensors; a graph keeps their addresses. Layer 1 attends to what layer 0 gave ----
  const std::size_t bytes = kElements * sizeof(std::uint16_t);
  DeviceBuffer q(device, bytes), k(device, bytes), v(device, bytes);
  std::vector<DeviceBuffer> outputs;
  std::vector<Tensors> layers;
  DeviceBuffer workspace(device, plan.workspace_bytes());  // runs on one stream may share it
  for (int i = 0; i < kLayers; ++i) {
    outputs.emplace_back(device, bytes);
    Tensors& tensors = layers.emplace_back(contiguous_tensors(problem));
    tensors.q.data = q.data();
    tensors.k.data = k.data();
    tensors.v.data = i == 0 ? v.data() : outputs[i - 1].data();
    tensors.o.data = outputs[i].data();
  }
  fill(q, 0.5);
  fill(k, 0.25);

  // ---- 4. On the stream as it is ----
  fill(v, 7);
  for (const Tensors& tensors : layers) plan.run(tensors, workspace.data(), stream);
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  std::printf("launched: o = %g of values that are 7\n", first_of(outputs.back()));

  // ---- 5. The same launches as a graph: one launch a step instead of one a layer ----
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin the capture");
  for (const Tensors& tensors : layers) plan.run(tensors, workspace.data(), stream);
  check(cuStreamEndCapture(stream, &graph), "end the capture");
  check(cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
  check(cuGraphDestroy(graph), "cuGraphDestroy");

  for (int step = 1; step <= kSteps; ++step) {
    fill(v, static_cast<float>(step));  // new contents, the same addresses
    check(cuGraphLaunch(executable, stream), "cuGraphLaunch");
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    std::printf("replay %d: o = %g of values that are %d\n", step, first_of(outputs.back()), step);
  }
  check(cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  check(cuStreamDestroy(stream), "cuStreamDestroy");
}

}  // namespace

int main() {
  try {
    attend();
    return 0;
  } catch (const std::exception& error) {  // attnforge::Error says what to do; code() says which
    std::fprintf(stderr, "stream_and_graph: %s\n", error.what());
    return 1;
  }
}
