// disassemble.h - machine code as SASS text, through NVIDIA's disassembler where one is installed.
// For inspect.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace attnforge {

struct Disassembly {
  std::string text;     // SASS; "" when there is none
  std::string tool;     // full path of the program that wrote it
  std::string problem;  // why there is no text and what to do
};

struct DisassembleOptions {
  std::vector<std::string>
      folders;  // where to look for nvdisasm and cuobjdump; empty: $PATH and the usual toolkits
  double time_limit_s = 30;
  // Comments before instructions say which lines of the source they come from, those that it was
  // inlined into too: `//## File "f.cu", line 8 inlined at "f.cu", line 20`. Only nvdisasm has
  // these, where the cubin was compiled with line info.
  bool line_info = false;
};

/// Writes `cubin` to a temporary file ($TMPDIR, else /tmp), runs the disassembler on it and removes
/// the file. Never throws for a missing or failing tool, and ends it at the time limit.
/// Thread-safe.
Disassembly disassemble(std::span<const std::byte> cubin, const DisassembleOptions& options = {});

}  // namespace attnforge
