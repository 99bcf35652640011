#include "tuner/oracle_list.h"

#include <fmt/format.h>

#include <string>

#include "attnforge/error.h"
#include "runtime/loaded_launch.h"
#include "templates/registry.h"
#include "tuner/timer.h"

namespace attnforge {
namespace {

constexpr double
    kLongestSeconds = 60;  // it takes a fraction of one; this is for a GPU that others keep busy

/// A copy from the host is on the default stream.
void wait_for(CUstream stream, const std::string& trouble) {
  Event done;
  done.record(stream);
  if (!wait(done, kLongestSeconds)) throw Error(ErrorCode::kCuda, trouble);
}

Buffer uploaded_rows(const std::vector<ListedRow>& rows) {
  Buffer buffer(rows.size() * sizeof(ListedRow));
  buffer.copy_from_host(rows.data(), buffer.size_bytes());
  return buffer;
}

}  // namespace

ListOnGpu::ListOnGpu(const Sequences& sequences, const std::vector<ListedRow>& rows)
    : num_rows(static_cast<int>(rows.size())) {
  if (rows.empty()) return;
  list = uploaded_rows(rows);
  std::vector<ListedRow> placed = rows;
  for (ListedRow& row : placed) {
    const QueryRow place = place_of(sequences, {row.batch, 0, row.query});
    row = {static_cast<int>(place.batch), static_cast<int>(place.query)};
  }
  places = uploaded_rows(placed);
  wait_for(nullptr, "copying the oracle's rows did not finish: something else keeps the GPU busy");
}

void ListOnGpu::gather(const Instruments& instruments, const Tensor& from, DType dtype,
                       std::int64_t heads, int columns, const Buffer& to, CUstream stream) const {
  if (num_rows == 0) return;
  const auto words = [dtype](std::int64_t elements) {  // of 16 bits
    return bytes_of(dtype, elements) / 2;
  };
  instruments.gather({.from = from.data,
                      .to = to.data(),
                      .rows = static_cast<const int*>(places.data()),
                      .stride_batch = words(from.stride_batch),
                      .stride_row = words(from.stride_row),
                      .stride_head = words(from.stride_head),
                      .heads = static_cast<int>(heads),
                      .num_rows = num_rows,
                      .width = static_cast<int>(words(columns))},
                     stream);
}

OracleKernel oracle_kernel(std::string_view family, const Problem& problem,
                           const DeviceFacts& device) {
  const Family* const found = find_family(family);
  ATTNFORGE_ASSERT(found != nullptr, "the registry lists the oracles");
  const std::vector<Candidate> configs = candidates(*found, problem, device);
  ATTNFORGE_ASSERT(!configs.empty(), "an oracle serves every problem that is served");
  return {found, configs.front().config, problem};
}

void run_oracle(const OracleKernel& kernel, const DeviceFacts& device, const OwnCode& code,
                const Launch& launch, const Tensors& tensors, CUstream stream) {
  const Source source = kernel.source();
  const LoadedKernels kernels(code_of(code, source, device.arch).bytes, source, launch);
  LoadedLaunch(launch, kernels).run(tensors, {}, stream);
  wait_for(stream, fmt::format("the oracle of \"{}\" did not finish in {} s: something else keeps "
                               "the GPU busy",
                               to_string(kernel.problem), kLongestSeconds));
}

void wait_for_copies(CUstream stream) {
  wait_for(stream,
           "copying a candidate's output did not finish: something else keeps the GPU busy");
}

}  // namespace attnforge
