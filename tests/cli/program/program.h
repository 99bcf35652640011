// program.h - runs the built program attnforge as a process of its own.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace attnforge::cli {

struct Outcome {
  int exit_code = -1;  // of a process that a signal ended: 128 + its number
  std::string out, err;
};

/// Variables to set on top of this process's environment.
using Environment = std::map<std::string, std::string>;

/// Ended after two minutes; then the exit code is 128 + SIGKILL.
Outcome run_program(const std::vector<std::string>& arguments, const Environment& environment = {});

/// Whether the system gives out pseudo-terminals; some containers have no /dev/pts.
bool has_terminals();

/// The same with standard output and error on a terminal of `columns`; all of both is in
/// Outcome::out.
Outcome run_on_terminal(int columns, const std::vector<std::string>& arguments,
                        const Environment& environment = {});

/// Starts it with standard error in the file `err_path`, and returns at once.
pid_t start_program(const std::vector<std::string>& arguments, const Environment& environment,
                    const std::string& out_path, const std::string& err_path);
/// Waits for the end; see Outcome::exit_code.
int exit_code_of(pid_t process);

}  // namespace attnforge::cli
