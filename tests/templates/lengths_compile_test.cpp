// lengths_compile_test.cpp - NVRTC compiles the main loops with the pieces of variable lengths,
// which no family asks for yet, without spills. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "generator/arch.h"
#include "runtime/compiler.h"
#include "templates/embedded.h"

namespace attnforge {
namespace {

constexpr const char* kConfig =
    "{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, "
    ".right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 1, .alignment = 16, .rope = 0, "
    ".rope_dim = 0}, 64, 4, 64, 32, 2, 0, 2, 1, 0, 1, 0}";

/// The entry that fwd_mma_sm80 would have, and the step before it.
Source source_with(const std::string& lengths, const std::string& header) {
  Source source;
  source.name = "fwd_mma_sm80_" + lengths;
  source.entry = fmt::format(
      "#include \"fwd_mma_sm80/kernel.cuh\"\n"
      "#include \"pieces/dense.cuh\"\n"
      "#include \"{header}\"\n"
      "#include \"pieces/work_list_order.cuh\"\n"
      "#include \"steps/work_list/kernel.cuh\"\n"
      "using namespace attnforge;\n"
      "inline constexpr FwdMmaSm80Config kConfig{config};\n"
      "struct Pieces : DensePieces<kConfig> {{\n"
      "  using Lengths = {lengths};\n"
      "  using Order = WorkListOrder;\n"
      "}};\n"
      "struct Args : FwdMmaSm80Params {{\n"
      "  LengthsParams lengths;\n"
      "}};\n"
      "extern \"C\" __global__ void __launch_bounds__(1024)\n"
      "work_list(const __grid_constant__ Args p) {{\n"
      "  ListWork<Pieces::Lengths, Pieces::Walk, kConfig.block_m, kConfig.block_n, "
      "kConfig.pack_gqa>::run(p);\n"
      "}}\n"
      "extern \"C\" __global__ void\n"
      "__launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)\n"
      "attention(const __grid_constant__ Args p) {{\n"
      "  FwdMmaSm80<kConfig, Pieces, Args>::run(p);\n"
      "}}\n",
      fmt::arg("header", header), fmt::arg("config", kConfig), fmt::arg("lengths", lengths));
  flatten(source, embedded_headers());
  return source;
}

TEST(LengthPieces, PackedCompileWithoutSpills) {
  const Cubin cubin = compile(source_with("PackedLengths", "pieces/packed_lengths.cuh"),
                              arch_named("86"));
  EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0);
}

TEST(LengthPieces, UsedCompileWithoutSpills) {
  const Cubin cubin = compile(source_with("UsedLengths", "pieces/used_lengths.cuh"),
                              arch_named("86"));
  EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0);
}

}  // namespace
}  // namespace attnforge
