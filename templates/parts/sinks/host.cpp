// host.cpp - what the logits of sinks add to a kernel.
#include <fmt/format.h>

#include "attnforge/plan.h"
#include "templates/backward/host.h"
#include "templates/host/assembly.h"
#include "templates/host/launch_work.h"
#include "templates/host/split_counts.h"
#include "templates/parts/sinks/params.h"

namespace attnforge {

extern const Part sinks_part;

namespace {

/// A kernel that splits keys stores parts of rows: the step that adds these up counts the sinks.
/// One that finishes some rows itself counts them there, too.
void fill_output(Entry& entry, const Assembly& a) {
  entry.pieces.include("parts/sinks/params.h");
  if (a.splits() && !finishes_tiles(a.kernel.tiling)) return;
  entry.pieces.fill(Slot::kOutput,
                    {"SinkOutput<kDtype, kAlignment, kLse>", "parts/sinks/output.cuh",
                     "template <int kDtype, int kAlignment, bool kLse> "});
}

constexpr const char* kGradientKernel = "bwd_sinks";
constexpr Step kGradient{.kernel = kGradientKernel,
                         .after = true,
                         .in = [](const Assembly& a) { return a.kernel.gradients != nullptr; },
                         .text =
                             [](Entry& entry, const Assembly&) {
                               entry.pieces.include("parts/sinks/step_gradient.cuh");
                               return Step::Text{.threads = kBwdStepThreads,
                                                 .type = "BwdSinks<kConfig, Pieces::Lengths>"};
                             },
                         .launch =
                             [](const LaunchWork& work) {
                               return bwd_step(kGradientKernel, sink_blocks(work.problem()));
                             }};

}  // namespace

constinit const Part sinks_part{
    .name = "sinks",
    .in = [](const Assembly& a) { return a.problem.sinks; },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithSinks<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(SinkParams); },
    .add =
        [](Argument& argument, const LaunchWork&) {
          argument.field(SinkParams{}, AddressArgument{&Tensors::sinks});
        },
    .fill = fill_output,
    .steps = {&kGradient, 1}};

}  // namespace attnforge
