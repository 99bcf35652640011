// clear_rest.cpp - zeros in rows that no run writes, of the C API.
#include <fmt/format.h>

#include <vector>

#include "attnforge/c.h"
#include "plan/c/error.h"
#include "plan/c/handle.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/ops/op_kernels.h"
#include "templates/ops/clear_rest/host.h"

using namespace attnforge;

namespace {

/// Those of the arrays that have bytes.
std::vector<RowsToClear> checked(const attnforge_rest* arrays, std::size_t count) {
  std::vector<RowsToClear> all;
  for (std::size_t i = 0; i < count; ++i) {
    const attnforge_rest& a = arrays[i];
    if (a.rows == 0 || a.row_bytes == 0 || a.pieces == 0) continue;
    const bool aligned = (a.row_bytes | reinterpret_cast<std::intptr_t>(a.data)) % 4 == 0;
    if (a.data == nullptr || a.begin == nullptr || !aligned || a.rows < 0 || a.row_bytes < 0 ||
        a.pieces < 0 || all.size() == kMostToClear)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("arrays[{}] is at {} with {} pieces of {} rows of {} bytes from the "
                              "row at {} on; give up to {} arrays, no pointer NULL, addresses and "
                              "row_bytes that are multiples of 4",
                              i, a.data, a.pieces, a.rows, a.row_bytes,
                              static_cast<const void*>(a.begin), kMostToClear));
    all.push_back({a.data, a.begin, a.rows, a.row_bytes, a.pieces});
  }
  return all;
}

}  // namespace

attnforge_status attnforge_clear_rest(attnforge_context* context, const attnforge_rest* arrays,
                                      size_t count, void* stream) {
  return guarded([&] {
    DeviceState& state = state_of(device_of(context));
    const std::vector<RowsToClear> all = checked(arrays, count);
    if (all.empty()) return;
    const ContextScope scope(state.context);
    const LaunchStep step = clear_rest_step(all, state.facts.num_sms);
    op_kernels("clear_rest", "clears rows", !context->no_jit, state, clear_rest_source,
               [&] { return Launch{.steps = {step}}; })
        .at(step.kernel)
        .launch(step, step.params, static_cast<CUstream>(stream));
  });
}
