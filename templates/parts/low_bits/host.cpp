// host.cpp - what k and v of 8 or 4 bits add to a kernel: their scales, and the header by which it
// widens them.
#include <fmt/format.h>

#include "attnforge/plan.h"
#include "templates/host/assembly.h"
#include "templates/host/launch_work.h"
#include "templates/parts/low_bits/params.h"

namespace attnforge {

extern const Part low_bits_part;

namespace {

TensorRef reference(const ScaleTensor& of) {
  return {of.data, of.stride_batch, of.stride_row, of.stride_head};
}
void bind_scales(ScaleParams& scales, const Tensors& tensors, const RunMemory&) {
  scales = {reference(tensors.k_scale), reference(tensors.v_scale)};
}
void bind_qkv_scales(QkvScaleParams& scales, const Tensors& tensors, const RunMemory& memory) {
  bind_scales(scales, tensors, memory);
  scales.q = reference(tensors.q_scale);
}

bool of_q(const Problem& problem) { return is_low_bit(problem.dtype_q); }

}  // namespace

constinit const Part low_bits_part{
    .name = "low_bits",
    .in = [](const Assembly& a) { return has_low_bit_kv(a.problem); },
    .type =
        [](const Assembly& a, std::string_view params) {
          return fmt::format("WithScales<{}{}>", params, of_q(a.problem) ? ", QkvScaleParams" : "");
        },
    .bytes =
        [](const Assembly& a) {
          return of_q(a.problem) ? sizeof(QkvScaleParams) : sizeof(ScaleParams);
        },
    .add =
        [](Argument& argument, const LaunchWork& work) {
          if (of_q(work.assembly.problem))
            argument.own<bind_qkv_scales>(QkvScaleParams{});
          else
            argument.own<bind_scales>(ScaleParams{});
        },
    .steps_have_it = false,
    .fill =
        [](Entry& entry, const Assembly& a) {
          entry.pieces.include("parts/low_bits/params.h");
          if (!a.kernel.low_bits_header.empty()) entry.pieces.include(a.kernel.low_bits_header);
          if (!of_q(a.problem) || a.kernel.low_bits_header.empty()) return;
          entry.pieces.fill(Slot::kVJob, {"TransposeV<kConfig, Tile>", "hopper/transpose_v.cuh",
                                          "template <class Tile> "});
          if (a.problem.kv_scale == KvScale::kToken)
            entry.pieces.fill(Slot::kKJob,
                              {"LoadKeyScales<kConfig, Tile>", "hopper/load_key_scales.cuh",
                               "template <class Tile> "});
        },
    .suffix =
        [](const Problem& p) {
          return fmt::format("_{}_{}", to_string(p.dtype_k), to_string(p.dtype_v));
        }};

}  // namespace attnforge
