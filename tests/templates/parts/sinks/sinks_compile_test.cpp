// sinks_compile_test.cpp - NVRTC compiles the families that serve sinks, with all that changes the
// kernel's argument or its rows. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/shape.h"
#include "runtime/compile/compiler.h"
#include "templates/host/assembly.h"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"

namespace attnforge {

namespace {

struct SinkCase {
  const char *family, *arch, *problem;
};
constexpr SinkCase kCases[] = {
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=2 num_heads=16:4 seqlen=8192 head_dim=128 causal lse sinks"},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=2 num_heads=16 seqlen=8192 head_dim=128 blocks=128 sinks"},
    {"fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=4 num_heads=64:8 seqlen=1:8192 head_dim=64 sinks window_left=127 causal"},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 lengths=packed sinks lse "
     "score=\"s + 0.5f * (k - q)\""},
    {"fwd_mma_sm80", "80", "fwd bf16 batch=2 num_heads=16:4 seqlen=4096 head_dim=128 sinks lse"},
    {"fwd_mma_sm80", "86",
     "fwd fp16 batch=2 num_heads=16 seqlen=4096 head_dim=64 blocks=64 mask_bits sinks"},
    {"fwd_mma_sm80", "89",
     "fwd fp16 batch=2 num_heads=16 seqlen=4096 head_dim=96 lengths=used sinks"},
    {"fwd_mma_sm80", "80",
     "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=64 rope=half causal sinks"},
    {"fwd_regtile_f32", "80", "fwd fp32 batch=2 num_heads=8:2 seqlen=1024 head_dim=64 sinks lse"},
    {"fwd_naive", "80",
     "fwd bf16 batch=2 num_heads=8:2 seqlen=300 head_dim=64 sinks blocks=64 lengths=used lse"},
};

Config first_config(const Family& family, const Problem& problem, const char* arch) {
  return candidates(family, problem, typical_device(arch)).front().config;
}

/// Query heads of one K/V head in a tile have logits of their own; one piece of their keys counts
/// them.
TEST(Sinks, CompileWithHeadsPackedIntoATileAndKeysSplit) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=4 num_heads=16:2 seqlen=1:65536 head_dim=128 sinks lse");
  for (const auto& [name, arch] : {std::pair("fwd_mma_sm80", "80"), {"fwd_wgmma_sm90a", "90a"}}) {
    const Family& family = *find_family(name);
    const std::vector<Candidate> all = candidates(family, problem, typical_device(arch));
    const auto packed = std::ranges::find_if(all, [](const Candidate& c) {
      return c.config.get("pack_gqa") == 8 && c.config.get("num_splits") > 1;
    });
    ASSERT_NE(packed, all.end()) << name;
    const auto cubin = test::compiled(family.render(packed->config, problem),
                                      typical_device(arch).arch);
    EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0) << to_string(packed->config);
  }
}

/// The member `sinks` is where the launch puts it, after any other part.
TEST(Sinks, LieWhereTheLaunchPutsThem) {
  for (const SinkCase& each : kCases) {
    const Problem problem = parse_problem(each.problem);
    const Family& family = *find_family(each.family);
    const DeviceFacts& device = typical_device(each.arch);
    const Config config = first_config(family, problem, each.arch);
    const LaunchStep step = family.launch(config, problem, device).steps.back();
    const auto part = std::ranges::find_if(step.args, [](const ArgumentField& part) {
      return std::holds_alternative<AddressArgument>(part.value);
    });
    ASSERT_NE(part, step.args.end());
    EXPECT_EQ(std::get<AddressArgument>(part->value).tensor, &Tensors::sinks);
    Source source = family.render(config, problem);
    const std::size_t kernel = source.entry.find("\n" + step.kernel + "(");
    ASSERT_NE(kernel, std::string::npos) << source.entry;
    const std::size_t begin = source.entry.find("const __grid_constant__ ", kernel);
    const std::string type = source.entry.substr(begin, source.entry.find(" p)", begin) - begin);
    source.text = source.text.substr(0, source.text.find("extern \"C\" __global__")) +
                  "extern \"C\" __global__ void probe(" + type +
                  " p, u64* to) { to[0] = u64(p.sinks.logits); }\n";
    EXPECT_THAT(test::compiled_ptx(source, device.arch),
                testing::HasSubstr(fmt::format("[probe_param_0+{}]", part->offset)))
        << type;
  }
}

/// A split of a row's keys must not count the row's sink: whatever adds the splits up does.
TEST(Sinks, AreNotCountedWhereAKernelStoresPartsOfRows) {
  const Problem problem = parse_problem("fwd bf16 seqlen=64 sinks");
  const auto output = [&](int splits) {
    const KernelTraits kernel{.params = {"Params", 16, 16},
                              .pieces = &kDensePieces,
                              .tiling = {.block_m = 64, .num_splits = splits}};
    const Shape shape = shape_of(problem);
    return entry_of(assemble(problem, shape, kernel)).pieces.type(Slot::kOutput);
  };
  EXPECT_EQ(output(1), "SinkOutput<kDtype, kAlignment, kLse>");
  EXPECT_THAT(output(2), testing::HasSubstr("PartialOutput<"));
}

}  // namespace
}  // namespace attnforge
