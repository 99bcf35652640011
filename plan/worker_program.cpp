#include "plan/worker_program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "attnforge/error.h"
#include "attnforge/tune.h"
#include "attnforge/version.h"
#include "generator/source.h"
#include "runtime/compile/nvrtc_library.h"
#include "runtime/device.h"
#include "templates/embedded.h"
#include "templates/registry.h"
#include "tuner/worker/serve.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

/// Where anybody may put a program, one that was found there only by its position is not run.
bool anybody_may_write(const fs::path& folder) {
  struct stat info {};
  return stat(folder.c_str(), &info) != 0 || (info.st_mode & S_IWOTH) != 0;
}

}  // namespace

const std::string& worker_identity() {
  static const std::string identity = [] {
    Source all;
    for (const Header& header : embedded_headers()) all.text += header.text;
    return fmt::format("{}, protocol {}, {}", kVersion, kWorkerProtocol, digest(all));
  }();
  return identity;
}

WorkerChoice worker_from_environment() {
  const char* const named = secure_getenv("ATTNFORGE_WORKER");
  const std::string value = named == nullptr ? "" : named;
  if (value == "in_process") return {.in_process = true};
  if (value == "none") return {.missing = "ATTNFORGE_WORKER=none"};
  if (!value.empty()) {
    if (is_program(value)) return {.program = {value, worker_identity()}};
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("ATTNFORGE_WORKER={}: it is the path of the program attnforge, or none, "
                    "or in_process; or unset it",
                    value));
  }
  const fs::path folder = own_folder();
  for (const fs::path& path : {folder / "attnforge", folder / ".." / "bin" / "attnforge"}) {
    if (folder.empty() || !is_program(path)) continue;
    if (!anybody_may_write(path.parent_path()))
      return {.program = {path.string(), worker_identity()}};
    return {.missing = fmt::format("the folder of {} can be written by every user; take that right "
                                   "away, or name the program by ATTNFORGE_WORKER",
                                   path.string())};
  }
  return {.missing = fmt::format("the program attnforge is not installed beside the library, in {} "
                                 "or ../bin; name it by ATTNFORGE_WORKER",
                                 folder.string())};
}

WorkerChoice worker_for(int ordinal) {
  WorkerChoice choice = worker_from_environment();
  const char* const named = secure_getenv("ATTNFORGE_WORKER");
  if (choice.program.path.empty() || (named != nullptr && *named != '\0') ||
      !has_one_process(ordinal))
    return choice;
  return {.missing =
              "the GPU's compute mode, EXCLUSIVE_PROCESS, lets no process but this one use "
              "it; under MPS, which does, name the program " +
              choice.program.path + " by ATTNFORGE_WORKER"};
}

int serve_search(std::string_view role, int supervisor) {
  const WorkerRole of = role == "gpu" ? WorkerRole::kGpu : WorkerRole::kCompile;
  if (!become_worker(of, supervisor)) return 1;
  try {
    return serve(of, worker_identity(), [](std::string_view name) { return find_family(name); });
  } catch (...) {
    return 1;  // no memory for a message
  }
}

}  // namespace attnforge
