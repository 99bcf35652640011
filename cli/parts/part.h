// part.h - what parts of a problem add to the verbs that read problems: options, what these
// say of a problem, what their files hold, and what is told of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/measure.h"
#include "attnforge/problem.h"
#include "cli/options/command_line.h"
#include "cli/options/problems.h"
#include "cli/output/mask_drawing.h"

namespace attnforge {
class Device;
}

namespace attnforge::cli {

/// The verb's options that concern all files.
struct RunFlags {
  bool uint16_is_bf16 = false;
  bool random = false;  // inputs are made up where no file is named
  bool check = false;
  bool on_gpu = true;
};

/// The tables that are known of a run that is only looked at.
struct KnownTables {
  HostTensors tables{};
  std::vector<std::vector<std::byte>> arrays{};  // of each argument; empty: not known
};

/// What a part does not override does nothing.
class RunPart {
 public:
  virtual ~RunPart() = default;

  // ---- Options, and whole lines of the help's end ----
  virtual void add_options(Command&) {}          // of run alone: files
  virtual void add_table_options(Command&) {}    // of run and inspect
  virtual void add_problem_options(Command&) {}  // of run, inspect and bench
  virtual void add_sweep_options(Command&) {}    // of bench alone
  virtual const char* help() const { return ""; }
  /// Examples for "run" or "inspect".
  virtual std::string examples(std::string_view) const { return ""; }

  // ---- What they say of problems ----
  /// More words of a problem's text.
  virtual void add_words(std::string&) const {}
  /// What words cannot say, of the problem of that text. Random choices depend on the seed. What a
  /// part keeps of it, for check() and what comes after, is of the problem that was completed last.
  virtual Problem completed(const Problem& problem, std::uint64_t) { return problem; }
  /// A sweep's problems of one.
  virtual std::vector<Problem> swept(const Problem& problem) const { return {problem}; }

  // ---- A run ----
  /// Before anything is allocated. Throws Error(kInvalidArgument) for options that do not go with
  /// the problem, or with others.
  virtual void check(const Problem&, const RunFlags&) const {}
  /// From files, in place of what `host` has.
  virtual void take(const Problem&, const RunFlags&, HostTensors&) const {}
  /// What the GPU finds, in place of what problem and `host` have.
  virtual void find(Device&, Problem&, HostTensors&) const {}
  /// Outputs of the part to files.
  virtual void write(const Problem&, const RunFlags&, const HostTensors&) const {}
  /// Lines of the report.
  virtual std::string report(const Problem&, const HostTensors&) const { return ""; }

  // ---- inspect ----
  /// What options say of a run's tables.
  virtual void know(const Problem&, KnownTables&) const {}
  /// What of a completed problem can be drawn, if anything.
  virtual std::optional<Drawing> drawing(const Problem&) const { return std::nullopt; }
};

using RunParts = std::vector<std::unique_ptr<RunPart>>;

// In the order of their turns: tables of files, numbers of heads, scales, files beside o and lse,
// the user's code with its arrays, block masks of files or found of the texts.
std::unique_ptr<RunPart> rope_part();
std::unique_ptr<RunPart> head_part();
std::unique_ptr<RunPart> scale_part();
std::unique_ptr<RunPart> gradient_part();
std::unique_ptr<RunPart> code_part();
std::unique_ptr<RunPart> mask_part();
RunParts run_parts();

/// Reads problems with what the parts' options say, while these live.
ReadText reader_of(const RunParts& parts, std::uint64_t seed = 0);

/// The work of a run, as far as the parts' options say what it computes.
Work work_of(const RunParts& parts, const Problem& problem);

/// The drawing of the last part, in their order, that draws (a given block mask before a text's);
/// empty where none does.
Drawing drawing_of(const RunParts& parts, const Problem& problem);

/// Examples of all.
std::string examples_of(const RunParts& parts, std::string_view verb);

}  // namespace attnforge::cli
