// host.cpp - what k and v of 8 or 4 bits add to a kernel: their scales, and the header by which it
// widens them.
#include <fmt/format.h>

#include "attnforge/plan.h"
#include "templates/host/assembly.h"
#include "templates/parts/low_bits/params.h"

namespace attnforge {

extern const Part low_bits_part;

namespace {

void bind_scales(ScaleParams& scales, const Tensors& tensors, const RunMemory&) {
  const auto ref = [](const ScaleTensor& of) {
    return TensorRef{of.data, of.stride_batch, of.stride_row, of.stride_head};
  };
  scales = {ref(tensors.k_scale), ref(tensors.v_scale)};
}

}  // namespace

constinit const Part low_bits_part{
    .name = "low_bits",
    .in = [](const Assembly& a) { return has_low_bit_kv(a.problem); },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithScales<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(ScaleParams); },
    .add = [](Argument& argument, const LaunchWork&) { argument.own<bind_scales>(ScaleParams{}); },
    .steps_have_it = false,
    .fill =
        [](Entry& entry, const Assembly& a) {
          entry.pieces.include("parts/low_bits/params.h");
          if (!a.kernel.low_bits_header.empty()) entry.pieces.include(a.kernel.low_bits_header);
        },
    .suffix =
        [](const Problem& p) {
          return fmt::format("_{}_{}", to_string(p.dtype_k), to_string(p.dtype_v));
        }};

}  // namespace attnforge
