// seams_compile_test.cpp - NVRTC compiles a main loop with a walk over a list of key tiles that no
// family has: what the seams promise. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "attnforge/error.h"
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

/// What NVRTC says of the pieces in place of dense ones, which `checks` follow; "": nothing.
std::string said_of(const std::string& pieces, const std::string& checks) {
  Source source;
  source.name = "seams_only";
  source.entry = fmt::format(
      "#include \"fwd_mma_sm80/kernel.cuh\"\n"
      "#include \"pieces/concepts.cuh\"\n"
      "#include \"hopper/dense_pieces.cuh\"\n"
      "#include \"pieces/dense.cuh\"\n"
      "#include \"backward/plain_slope.cuh\"\n"
      "using namespace attnforge;\n"
      "inline constexpr FwdMmaSm80Config kConfig{};\n"
      "using Params = FwdMmaSm80Params;\n"
      "struct Pieces : DensePieces<kConfig> {{\n{}}};\n"
      "using Tile = QueryTile<Params, 1, Pieces::Lengths>;\n"
      "{}"
      "extern \"C\" __global__ void seams_only() {{}}\n",
      kConfig, pieces, checks);
  flatten(source, embedded_headers());
  try {
    compile(source, arch_named("86"));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Seams, DensePiecesAreWhatTheConceptsSay) {
  EXPECT_EQ(said_of("",
                    "static_assert(seams::Order<Pieces::Order, Params, Tile>);\n"
                    "static_assert(seams::Lengths<Pieces::Lengths, Params>);\n"
                    "static_assert(seams::Walk<Pieces::Walk, Params, Tile>);\n"
                    "static_assert(seams::Keys<Pieces::Keys<kBf16>, Tile, Pieces::Walk>);\n"
                    "static_assert(seams::TmaKeys<DenseTmaPieces<kConfig>::Keys, Tile, "
                    "Pieces::Walk>);\n"
                    "static_assert(seams::Score<Pieces::Score, Tile>);\n"
                    "static_assert(seams::Slope<PlainSlope, Tile>);\n"
                    "static_assert(seams::Mask<Pieces::Mask, Tile>);\n"
                    "static_assert(seams::Output<Pieces::Output<kFp16, 16, true>, Tile>);\n"
                    "struct Untouched {\n"
                    "  __device__ Untouched(const Tile&, int, int);\n"
                    "  __device__ void run(u32, u32) const;\n"
                    "};\n"
                    "static_assert(seams::Job<Untouched, Tile>);\n"),
            "");
}

/// A piece of each kind that lacks something, or has it of another type.
TEST(Seams, EachConceptRefusesAPieceThatLacksSomething) {
  struct Case {
    const char *pieces, *check;
  };
  for (const Case& wrong : {
           Case{"struct Order : FixedOrder { __device__ static int place(const Params&, int); };\n",
                "Order<Pieces::Order, Params, Tile>"},
           Case{"struct Order : FixedOrder { static constexpr bool kFinds = true; };\n",
                "Order<Pieces::Order, Params, Tile>"},
           Case{"struct OneLength { __device__ int q() const; };\n",
                "Lengths<Pieces::OneLength, Params>"},
           Case{"struct Walk : RangeWalk<false> { __device__ float tile_at(int) const; };\n",
                "Walk<Pieces::Walk, Params, Tile>"},
           Case{"struct Walk : RangeWalk<false> {};\n", "Walk<Pieces::Walk, Params, Tile>"},
           Case{"struct MoreKeys : StridedKeys<kBf16> { __device__ void share(int); };\n",
                "Keys<Pieces::MoreKeys, Tile, Pieces::Walk>"},
           Case{"struct MoreKeys { static constexpr int kThreads = 1; };\n",
                "TmaKeys<Pieces::MoreKeys, Tile, Pieces::Walk>"},
           Case{"struct Score : PlainScore { __device__ static void apply(int); };\n",
                "Score<Pieces::Score, Tile>"},
           Case{"struct Slope { static constexpr bool kOne = true; };\n",
                "Slope<Pieces::Slope, Tile>"},
           Case{"struct Mask { __device__ static void apply(int); };\n",
                "Mask<Pieces::Mask, Tile>"},
           Case{"struct Rows { __device__ static void store(int); };\n",
                "Output<Pieces::Rows, Tile>"},
           Case{"struct Splits { __device__ static int slice(const Params&, int); };\n",
                "Splits<Pieces::Splits, Params>"},
           Case{"struct Work { __device__ Work(int, int, int); __device__ void run(u32, u32); };\n",
                "Job<Pieces::Work, Tile>"},
       }) {
    const std::string said = said_of(
        wrong.pieces, fmt::format("static_assert(seams::{}, \"is not it\");\n", wrong.check));
    EXPECT_THAT(said, testing::HasSubstr("is not it")) << wrong.pieces;
    EXPECT_EQ(said.find("error:"), said.rfind("error:")) << "one error: " << said;
  }
}

TEST(Seams, AWalkOverAListCompilesWithoutSpills) {
  const Cubin cubin = compile_with("  using Walk = ListWalk;\n");
  EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0);
}

}  // namespace
}  // namespace attnforge
