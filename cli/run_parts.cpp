#include "cli/run_parts.h"

namespace attnforge::cli {

std::unique_ptr<RunPart> rope_files();      // cli/rope_files
std::unique_ptr<RunPart> gradient_files();  // cli/gradient_files

void RunPart::write(const Problem&, const RunFlags&, const HostTensors&) const {}

std::vector<std::unique_ptr<RunPart>> run_parts() {
  std::vector<std::unique_ptr<RunPart>> parts;
  parts.push_back(rope_files());
  parts.push_back(gradient_files());
  return parts;
}

}  // namespace attnforge::cli
