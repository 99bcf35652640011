// run_parts.h - what parts of a problem add to attnforge run: options, and what their files hold.
#pragma once

#include <memory>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"
#include "cli/command_line.h"

namespace attnforge::cli {

/// What the verb was told that concerns all files.
struct RunFlags {
  bool uint16_is_bf16 = false;
  bool random = false;  // inputs are made up where no file is named
  bool check = false;
};

class RunPart {
 public:
  virtual ~RunPart() = default;
  virtual void add_options(Command& verb) = 0;
  /// Of the help's end: whole lines.
  virtual const char* help() const = 0;
  /// Before anything is allocated. Throws Error(kInvalidArgument) for options that do not go with
  /// the problem, or with others.
  virtual void check(const Problem& problem, const RunFlags& flags) const = 0;
  /// From files, in place of what `host` has.
  virtual void take(const Problem& problem, const RunFlags& flags, HostTensors& host) const = 0;
  /// Outputs of the part to files.
  virtual void write(const Problem& problem, const RunFlags& flags, const HostTensors& host) const;
};

/// All of them. cli/run_parts.cpp names each.
std::vector<std::unique_ptr<RunPart>> run_parts();

}  // namespace attnforge::cli
