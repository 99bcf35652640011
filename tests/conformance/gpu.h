// gpu.h - a problem's tensors on the GPU, and candidates loaded to run on them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/candidates.h"
#include "runtime/counter_pool.h"
#include "runtime/device.h"
#include "runtime/loaded_launch.h"
#include "runtime/memory.h"
#include "tests/support/host_problem.h"

namespace attnforge::test {

/// "" when GPU 0 and NVRTC can be used, else why not.
std::string gpu_problem();
PrimaryContext& gpu_context();
const DeviceFacts& gpu_facts();

/// Copies of a host problem's storages. `tensors` points into them.
struct GpuProblem {
  std::vector<Buffer> buffers;
  Tensors tensors;

  explicit GpuProblem(const HostProblem& host);
  void upload(const HostProblem& host);
  void download(HostProblem& host) const;
};

/// A compiled candidate, without the driver.
struct Compiled {
  Candidate candidate;
  Launch launch;
  Cubin cubin;
  std::string failure;  // "" unless it does not compile
};
Compiled compile_candidate(const Candidate& candidate, const Problem& problem);
/// The config used when nothing was measured, and `more` others chosen by `seed`; compiled in
/// parallel. Empty when the family does not serve the problem here.
std::vector<Compiled> compile_some(const Family& family, const Problem& problem, int more,
                                   unsigned seed);
/// The same for another GPU, as PTX: a driver compiles it for any GPU of that arch or a later one.
std::vector<Compiled> compile_some_to_ptx(const Family& family, const Problem& problem,
                                          const DeviceFacts& device, int more, unsigned seed);

/// The same for `count` configs that a caller may give and that no search tries.
std::vector<Compiled> compile_unsearched(const Family& family, const Problem& problem, int count,
                                         unsigned seed);

/// Ready to run; one object may be run from several threads if each brings its own workspace.
class Loaded {
 public:
  explicit Loaded(const Compiled& compiled);
  void run(const Tensors& tensors, const Buffer& workspace, CUstream stream) const;
  /// Poisoned.
  Buffer make_workspace() const;
  /// "" or what makes a launch of these kernels illegal on a GPU of `arch`.
  std::string misfit(const Arch& arch) const;

 private:
  LoadedKernels kernels_;
  LoadedLaunch launch_;
  std::unique_ptr<CounterPool> counters_ = std::make_unique<CounterPool>();
};

}  // namespace attnforge::test
