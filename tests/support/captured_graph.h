// captured_graph.h - runs that a stream captures, as a graph.
#pragma once

#include <functional>

#include "runtime/memory.h"

namespace attnforge {

/// What `enqueue` puts on a stream, captured once, to be launched any number of times.
class Graph : public Owned<CUgraphExec, &Driver::cuGraphExecDestroy> {
 public:
  /// Captures in thread-local mode: a call of this thread that is illegal in a capture (allocation,
  /// synchronisation, load) fails there and is thrown on. The stream is left out of the capture in
  /// every case.
  Graph(const Stream& stream, const std::function<void(CUstream)>& enqueue) {
    const Driver& cuda = driver();
    check(cuda.cuCtxGetCurrent(&context_), "ask for the current CUDA context");
    check(cuda.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "begin a stream capture");
    CUgraph graph = nullptr;
    try {
      enqueue(stream.get());
    } catch (...) {
      if (cuda.cuStreamEndCapture(stream.get(), &graph) == CUDA_SUCCESS && graph != nullptr)
        cuda.cuGraphDestroy(graph);
      throw;
    }
    check(cuda.cuStreamEndCapture(stream.get(), &graph), "end a stream capture");
    const CUresult result = cuda.cuGraphInstantiateWithFlags(&handle_, graph, 0);
    cuda.cuGraphDestroy(graph);
    check(result, "instantiate a captured graph");
  }

  void launch(CUstream stream) const {
    check(driver().cuGraphLaunch(handle_, stream), "launch a graph");
  }
};

}  // namespace attnforge
