// oracle_list.h - an oracle's run, and the rows that it computes, on the GPU: as a list, and where
// they lie in the outputs of a run.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attnforge/plan.h"
#include "generator/candidates.h"
#include "reference/sequences.h"
#include "runtime/memory.h"
#include "templates/oracle/fwd_naive/oracle.h"
#include "tuner/instruments.h"
#include "tuner/own_code.h"

namespace attnforge {

struct ListOnGpu {
  int num_rows = 0;
  Buffer list;    // of ListedRow
  Buffer places;  // the same rows as they lie in a tensor of queries

  ListOnGpu() = default;
  /// For rows of keys: `sequences` transposed. Throws Error(kCuda).
  ListOnGpu(const Sequences& sequences, const std::vector<ListedRow>& rows);

  const ListedRow* listed() const { return static_cast<const ListedRow*>(list.data()); }
  /// Enqueues a copy of these rows of all heads of `from`, [heads][num_rows][columns], to `to`.
  void gather(const Instruments& instruments, const Tensor& from, DType dtype, std::int64_t heads,
              int columns, const Buffer& to, CUstream stream) const;
};

/// For copies that were enqueued so far. Throws Error(kCuda) where something else keeps the GPU
/// busy.
void wait_for_copies(CUstream stream);

/// An oracle's family, the config of it that is run, and the problem that it is rendered for.
struct OracleKernel {
  const Family* family;
  Config config;
  Problem problem;

  Source source() const { return family->render(config, problem); }
};
OracleKernel oracle_kernel(std::string_view family, const Problem& problem,
                           const DeviceFacts& device);
/// Runs the kernel as `launch` says and waits for it. Throws Error(kCuda), also where something
/// else keeps the GPU busy, Error(kCompile).
void run_oracle(const OracleKernel& kernel, const DeviceFacts& device, const OwnCode& code,
                const Launch& launch, const Tensors& tensors, CUstream stream);

}  // namespace attnforge
