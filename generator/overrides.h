// overrides.h - what a developer forces on every problem, for experiments. Plain data and pure
// functions: plan/ reads it from the environment once, the layers below are handed it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "generator/config.h"
#include "generator/family.h"
#include "generator/source.h"

namespace attnforge {

/// A template header with text of its own; path below templates/.
struct TemplateFile {
  std::string path;
  std::string text;
};

/// Nothing is forced by default.
struct Overrides {
  std::string family{};        // only this one; "": any
  int block_n = 0;             // only this tile of keys, also one that no search tries; 0: any
  int smem_bytes = 0;          // that a block may take, if the GPU has more; 0: what the GPU has
  std::string kernel_name{};   // the kernel's symbol; "": the family's
  bool own_templates = false;  // headers are not all the embedded ones
  std::vector<TemplateFile> headers{};  // every one; needed only with own_templates or kernel_name
  bool print_launch = false;            // log each kernel's launch once
  bool check_inputs = false;            // read what is on the GPU and look at it before a launch
};

/// What decides which kernel a problem gets, or changes it: "forced family=fwd_naive block_n=64
/// smem_bytes=49152 own_templates kernel_name=mine", or "" when nothing of that is forced.
std::string forced_text(const Overrides& overrides);

/// The text under which tries of a bucket's problem are stored: the problem's own, then
/// forced_text(). So what was measured under force is kept, and never answers for the problem.
std::string stored_as(const Problem& problem, const Overrides& overrides);

/// `device` with no more shared memory per block than the budget.
DeviceFacts limited(DeviceFacts device, const Overrides& overrides);

/// Leaves only what is forced on the axes of a search space. "" if that can be done, else why not.
std::string force_axes(std::vector<Axis>& axes, const Overrides& overrides);

/// "" unless a config that the caller names is not what is forced: then which of the two to drop.
std::string contradiction(const Config& config, const Overrides& overrides);

/// family.render(), with the headers and the symbol that are forced.
Source render(const Family& family, const Config& config, const Problem& problem,
              const Overrides& overrides);

/// The symbol in the compiled code of a kernel that LaunchStep::kernel calls `kernel`. The kernel
/// that the source is named after is called kernel_name, others kernel_name_ and their own symbol.
std::string symbol_of(std::string_view kernel, const Source& source);

}  // namespace attnforge
