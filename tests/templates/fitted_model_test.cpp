// fitted_model_test.cpp - models as bench/fit sees them, and how it looks for constants.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "bench/fit/minimize.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/host/fitted_model.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

TEST(FittedModel, SaysWhatTheFamilySaysWithTheConstantsOfToday) {
  for (const FittedModel* model : {&fitted_fwd_mma_sm80, &fitted_bwd_mma_sm80}) {
    const bool forward = model == &fitted_fwd_mma_sm80;
    for (const char* arch : {"80", "86", "90a", "120a"}) {
      for (const char* sizes : {"seqlen=1024", "seqlen=1:4096"}) {
        if (!forward && std::string(sizes).find(':') != std::string::npos) continue;
        const Problem problem = parse_problem(std::string(forward ? "fwd" : "bwd") +
                                              " bf16 num_heads=8:2 head_dim=128 causal " + sizes);
        const DeviceFacts& device = typical_device(arch);
        const std::vector<double> constants = model->constants(device.arch);
        ASSERT_EQ(constants.size(), model->names.size());
        const auto all = candidates(*find_family(model->family), problem, device);
        ASSERT_FALSE(all.empty());
        for (const Candidate& each : all)
          EXPECT_EQ(model->estimate_us(each.config, problem, device, constants), each.estimate_us);
      }
    }
  }
}

TEST(FittedModel, EveryConstantHasItsNameAndCounts) {
  for (const FittedModel* model : {&fitted_fwd_mma_sm80, &fitted_bwd_mma_sm80}) {
    EXPECT_EQ(std::set(model->names.begin(), model->names.end()).size(), model->names.size());
    const DeviceFacts& device = typical_device("90a");
    const bool forward = model == &fitted_fwd_mma_sm80;
    for (std::size_t i = 0; i < model->names.size(); ++i) {
      bool counts = false;
      std::vector<double> constants = model->constants(device.arch), other = constants;
      other[i] = 2 * constants[i] + 1;
      for (const char* sizes : {"seqlen=1024", "seqlen=1:4096"}) {
        if (!forward && std::string(sizes).find(':') != std::string::npos) continue;
        const Problem problem = parse_problem(std::string(forward ? "fwd" : "bwd") +
                                              " bf16 num_heads=8:2 head_dim=128 " + sizes);
        for (const Candidate& each : candidates(*find_family(model->family), problem, device))
          counts |= model->estimate_us(each.config, problem, device, other) !=
                    model->estimate_us(each.config, problem, device, constants);
      }
      EXPECT_TRUE(counts) << model->family << " " << model->names[i];
    }
  }
}

TEST(Minimize, FindsTheBottomOfABentValleyAndIsNeverWorseThanItsStart) {
  const auto valley = [](const Vector& x) {
    return 100 * std::pow(x[1] - x[0] * x[0], 2) + std::pow(1 - x[0], 2);
  };
  const Vector found = minimize(valley, {-1.2, 1}, 0.5, 400);
  EXPECT_NEAR(found[0], 1, 1e-3);
  EXPECT_NEAR(found[1], 1, 1e-3);
  EXPECT_LE(valley(minimize(valley, {1, 1}, 0.5, 20)), 0.0);
}

}  // namespace
}  // namespace attnforge
