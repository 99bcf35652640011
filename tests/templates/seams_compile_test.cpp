// seams_compile_test.cpp - NVRTC compiles a main loop with a walk over a list of key tiles that no
// family has: what the seams promise. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "templates/embedded.h"

namespace attnforge {
namespace {

constexpr const char* kConfig =
    "{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 64, .head_dim_v = 64, "
    ".right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 1, .alignment = 16, .rope = 0, "
    ".rope_dim = 0}, 64, 4, 64, 32, 2, 0, 2, 1, 0, 1, 0}";

constexpr const char* kPieces = R"(
struct Args : FwdMmaSm80Params {
  const int* list;  // of key tiles, from the last to the first
  int listed;
};

/// A place is an index into the list.
struct ListWalk {
  const int* list;
  int tiles;

  static constexpr bool kListed = false;  // tiles of neighbouring keys

  template <class QueryTile>
  ATTNFORGE_DEVICE static ListWalk of_rows(const Args& args, const QueryTile&, int, int, int) {
    return {args.list, args.listed};
  }
  ATTNFORGE_DEVICE static int first() { return 0; }
  ATTNFORGE_DEVICE static int later(int place, int steps) { return place + steps; }
  ATTNFORGE_DEVICE bool has(int place) const { return place < tiles; }
  ATTNFORGE_DEVICE int tile_at(int place) const { return list[place]; }
  ATTNFORGE_DEVICE int step(int place) const {
    return has(place + 1) ? tile_at(place + 1) - tile_at(place) : 0;
  }
  template <class Attend>
  ATTNFORGE_DEVICE void for_each(const Attend& attend) const {
#pragma unroll 1
    for (int place = 0; has(place); ++place) attend(place, true);
  }
};
)";

Cubin compile_with(const std::string& replaced) {
  Source source;
  source.name = "fwd_mma_sm80_seams";
  source.entry = fmt::format(
      "#include \"fwd_mma_sm80/kernel.cuh\"\n"
      "#include \"pieces/dense.cuh\"\n"
      "using namespace attnforge;\n"
      "inline constexpr FwdMmaSm80Config kConfig{config};\n"
      "{pieces}"
      "struct Pieces : DensePieces<kConfig> {{\n"
      "{replaced}"
      "}};\n"
      "extern \"C\" __global__ void\n"
      "__launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)\n"
      "attention(const __grid_constant__ Args p) {{\n"
      "  FwdMmaSm80<kConfig, Pieces, Args>::run(p);\n"
      "}}\n",
      fmt::arg("config", kConfig), fmt::arg("pieces", kPieces), fmt::arg("replaced", replaced));
  flatten(source, embedded_headers());
  return compile(source, arch_named("86"));
}

TEST(Seams, AWalkOverAListCompilesWithoutSpills) {
  const Cubin cubin = compile_with("  using Walk = ListWalk;\n");
  EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0);
}

}  // namespace
}  // namespace attnforge
