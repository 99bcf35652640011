// widening_compile_test.cpp - NVRTC compiles the step that widens k and v, of every format and kind
// of lengths, without spills. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "templates/parts/widening/host.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

TEST(WideningStepCompiles, OfEveryFormatWithoutSpills) {
  constexpr const char* kProblems[] = {
      "fwd bf16 k=int8 v=int8 kv_scale=token seqlen=64 head_dim=128",
      "fwd fp16 k=int4 v=int4 kv_scale=group32 seqlen=64 head_dim=128 lengths=packed",
      "fwd bf16 k=int4 v=int4 kv_scale=token kv_zero seqlen=64 head_dim=128 lengths=packed",
      "fwd bf16 k=e4m3 v=e4m3 kv_scale=head seqlen=64 head_dim=64 lengths=packed page_size=16",
      "fwd fp16 k=e5m2 v=e5m2 kv_scale=tensor seqlen=64 head_dim=192:128 lengths=used page_size=24",
      "fwd bf16 k=int4 v=bf16 seqlen=64 head_dim=256 lengths=used",
      "fwd fp16 k=fp16 v=e4m3 kv_scale=group64 seqlen=64 head_dim=72 lengths=packed page_size=1",
  };
  const std::vector<std::string> faults = test::compile_together(
      std::size(kProblems), [&](std::size_t i) -> std::string {
        Source source;
        source.name = "widen_k_and_v";
        source.entry = "namespace attnforge {}\nusing namespace attnforge;\n";
        const auto cubin = test::compiled(with_widening(source, parse_problem(kProblems[i])),
                                          typical_device("90a").arch);
        const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
        return spills == 0 ? "" : fmt::format("{} bytes of spills", spills);
      });
  for (std::size_t i = 0; i < faults.size(); ++i) EXPECT_EQ(faults[i], "") << kProblems[i];
}

}  // namespace
}  // namespace attnforge
