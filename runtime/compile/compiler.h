// compiler.h - Source -> Cubin through NVRTC, which is opened at run time. Works without a GPU or a
// driver.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "attnforge/device.h"
#include "generator/cubin.h"
#include "generator/source.h"

namespace attnforge {

/// What is known of the NVRTC in use. $ATTNFORGE_NVRTC names the library; else the
/// copy or wheel next to this library, libnvrtc.so.13, .so.12, libnvrtc.so and the usual places of
/// toolkits and wheels are tried.
struct NvrtcFacts {
  bool available = false;  // found, and it compiled an empty source
  std::string path;
  int major = 0, minor = 0;
  std::string build;  // id of the build, e.g. "cl-36424714", from the header of an empty compile
  std::vector<int> archs;            // sm numbers that it knows
  std::string problem;               // when not available: what was tried and what to do
  std::string version_text() const;  // "13.0 cl-36424714"
};
/// The first call opens the library (tens of ms); later ones cost a branch. Thread-safe.
const NvrtcFacts& nvrtc_facts();

struct CompileOptions {
  bool line_info = false;  // which line of the source each instruction comes from
  // Becomes true when the result is not wanted any more: a newer NVRTC then gives up, within about
  // a third of the time that the compile takes, and compile() throws Error(kCompile). Borrowed.
  const std::atomic<bool>* unwanted = nullptr;
};

/// Compiles for real hardware (sm_xx), not PTX. Equal source, options and NVRTC give equal bytes.
/// Thread-safe; different sources compile in parallel. Throws Error(kNoDriver) when NVRTC is
/// missing or does not know the arch, Error(kCompile) with the first errors (at most about 4 KiB)
/// when the source is refused.
Cubin compile(const Source& source, const Arch& arch, const CompileOptions& options = {});

/// PTX text, for inspect and for running another arch's code in tests. Errors as compile().
std::string compile_to_ptx(const Source& source, const Arch& arch,
                           const CompileOptions& options = {});

}  // namespace attnforge
