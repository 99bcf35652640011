// verbs.h - what all verbs share: exit codes, how a verb joins the program, and the headers of what
// they all do: read options, print and refuse.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attnforge/printable.h"
#include "attnforge/version.h"
#include "cli/options/command_line.h"
#include "cli/output/json.h"
#include "cli/refuse.h"
#include "cli/terminal/terminal.h"

namespace attnforge::cli {

/// Documented in `attnforge --help` and docs/CLI.md: programs rely on them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,        // command line or problem text
  kExitUnsupported = 3,  // valid, but no kernel serves it
  kExitCheckFailed = 4,  // run --check found a wrong output
  kExitNoDevice = 5,     // no GPU, driver or NVRTC
  kExitInterrupted = 130,
};
ExitCode exit_code(ErrorCode code);

/// Runs a verb after its arguments were parsed; returns the exit code. Throws Error.
using Verb = std::function<int()>;

/// Each adds its subcommand to the program.
Verb add_tune(Command& program);
Verb add_run(Command& program);
Verb add_bench(Command& program);
Verb add_inspect(Command& program);
Verb add_report(Command& program);
Verb add_list(Command& program);
Verb add_cache(Command& program);
Verb add_doctor(Command& program);
Verb add_completion(Command& program);
/// After the others: it knows their help.
Verb add_help(Command& program);

}  // namespace attnforge::cli
