// compile_log.h - reads what NVRTC and ptxas wrote about a compile. Pure: text in, facts out.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "generator/cubin.h"

namespace attnforge {

/// What `--ptxas-options=-v` says.
struct CompileLog : KernelResources {
  bool has_resources = false;  // the log named the registers of at least one kernel
  std::map<std::string, KernelResources, std::less<>> kernels;  // of each entry function alone
  std::string
      remarks;  // all other lines: warnings and remarks, in order, ending in a newline unless empty
};
CompileLog read_compile_log(std::string_view log);

/// The errors of a failed compile, each with the source lines that the compiler shows below it,
/// without its warnings; the end of the log when no error is found in it. At most `max_bytes`.
std::string first_errors(std::string_view log, std::size_t max_bytes);

/// The lines, without their ends.
std::vector<std::string_view> log_lines(std::string_view log);

/// NVRTC writes "file(3): error: ...", "file(3): error #20: ..." and "nvrtc: error: ..."; ptxas
/// "..., line 3; error   : ..." and "ptxas fatal   : ...".
bool is_error_line(std::string_view line);

/// "cl-36424714" from the opening comment of PTX that NVRTC wrote; "" if there is none.
std::string build_id_of_ptx(std::string_view ptx);

}  // namespace attnforge
