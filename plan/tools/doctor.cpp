// doctor.cpp - looks at everything outside of attnforge that it depends on, and says what to do.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "attnforge/version.h"
#include "cache/file/journal.h"
#include "cache/file/network.h"
#include "cache/file/path.h"
#include "cache/file/trust.h"
#include "cache/shipped.h"
#include "generator/arch.h"
#include "plan/overrides.h"
#include "plan/worker_program.h"
#include "runtime/compile/compiler.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/log.h"

namespace attnforge {
namespace {

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

namespace fs = std::filesystem;
using State = Check::State;

constexpr std::uintmax_t kLittleSpace = std::uintmax_t{256} << 20;

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Check check_driver() {
  const std::string& problem = driver_problem();
  if (!problem.empty()) {
    return {"driver", State::kFailed, problem,
            "until then kernels can be inspected, compiled and ranked, but not run"};
  }
  return {"driver", State::kOk, fmt::format("libcuda for CUDA {}", version_text(driver_version())),
          ""};
}

Check check_worker() try {
  const WorkerChoice worker = worker_from_environment();
  if (worker.in_process)
    return {"worker", State::kWarning, "searches try kernels in the caller's process",
            "one that hangs or faults ends it; unset ATTNFORGE_WORKER"};
  if (!worker.missing.empty())
    return {"worker", State::kWarning, worker.missing,
            "first runs go by what was tuned before, with attnforge tune"};
  return {"worker", State::kOk, "searches try kernels by processes of " + worker.program.path, ""};
} catch (const Error& error) {
  return {"worker", State::kFailed, error.what(), "no device can be opened until then"};
}

Check check_nvrtc() {
  const NvrtcFacts& nvrtc = nvrtc_facts();
  if (!nvrtc.available) {
    return {"nvrtc", State::kFailed, nvrtc.problem,
            "only kernels whose code is in the database can run until then"};
  }
  Check check{"nvrtc", State::kOk, fmt::format("{} at {}", nvrtc.version_text(), nvrtc.path), ""};
  std::vector<std::string_view> unknown;
  for (const Arch& arch : archs()) {
    if (std::find(nvrtc.archs.begin(), nvrtc.archs.end(), arch.sm) == nvrtc.archs.end())
      unknown.push_back(arch.name);
  }
  if (!unknown.empty())
    check.detail += fmt::format("; does not know sm_{}", fmt::join(unknown, ", sm_"));
  const int driver = driver_version();
  if (driver > 0 && nvrtc.major > driver / 1000) {
    check.state = State::kWarning;
    check.advice = fmt::format(
        "the driver is for CUDA {}, and may not load what NVRTC {}.{} compiles: update the driver, "
        "or set "
        "ATTNFORGE_NVRTC to a libnvrtc of CUDA {}",
        version_text(driver), nvrtc.major, nvrtc.minor, driver / 1000);
  }
  return check;
}

Check check_gpu(const DeviceFacts& gpu) {
  Check check{
      fmt::format("gpu {}", gpu.ordinal), State::kOk,
      fmt::format("{}, sm_{}, {} SMs, {} GiB, compute mode {}", gpu.name,
                  gpu.arch.name.empty() ? std::to_string(gpu.arch.sm) : std::string(gpu.arch.name),
                  gpu.num_sms, gpu.memory_bytes >> 30, compute_mode(gpu.ordinal)),
      ""};
  if (gpu.arch.name.empty()) {
    check.state = State::kFailed;
    std::vector<std::string_view> known = known_archs();
    check.advice = fmt::format("attnforge has no kernels for this GPU; it knows sm_{}",
                               fmt::join(known, ", sm_"));
    return check;
  }
  check.detail += fmt::format(", {} for it", counted(std::ssize(shipped_chosen(device_class(gpu))),
                                                     "winner ships", "winners ship"));
  const NvrtcFacts& nvrtc = nvrtc_facts();
  if (nvrtc.available &&
      std::find(nvrtc.archs.begin(), nvrtc.archs.end(), gpu.arch.sm) == nvrtc.archs.end()) {
    check.state = State::kFailed;
    check.advice = fmt::format(
        "NVRTC {}.{} does not know sm_{}: set ATTNFORGE_NVRTC to a newer one", nvrtc.major,
        nvrtc.minor, gpu.arch.name);
  } else if (compute_mode(gpu.ordinal) == kProhibitedMode) {
    check.state = State::kFailed;
    check.advice = fmt::format("no process may use it: nvidia-smi -i {} -c DEFAULT", gpu.ordinal);
  } else if (has_one_process(gpu.ordinal)) {
    check.state = State::kWarning;
    check.advice = fmt::format(
        "one process alone may use it, so first runs have no workers and take what was tuned: "
        "attnforge tune beforehand, or nvidia-smi -i {} -c DEFAULT",
        gpu.ordinal);
  }
  return check;
}

std::vector<Check> check_gpus() {
  if (!driver_problem().empty()) return {};
  std::vector<Check> checks;
  const int count = device_count();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    try {
      checks.push_back(check_gpu(device_facts(ordinal)));
    } catch (const Error& error) {
      checks.push_back(
          {fmt::format("gpu {}", ordinal), State::kFailed, error.what(),
           "see whether nvidia-smi shows it, and the kernel log (dmesg) for Xid errors"});
    }
  }
  if (checks.empty()) {
    checks.push_back({"gpu", State::kFailed, "the driver shows no GPU",
                      "CUDA_VISIBLE_DEVICES may hide them all"});
  }
  return checks;
}

/// The nearest folder above `path` that exists.
fs::path existing_folder(const fs::path& path) {
  std::error_code ignored;
  fs::path folder = fs::absolute(path, ignored).parent_path();
  while (folder.has_relative_path() && !fs::is_directory(folder, ignored))
    folder = folder.parent_path();
  return folder;
}

/// Who else could have written it, although the environment says that this does not matter.
std::string trusted_all_the_same(const std::string& path) {
  return anybody_is_trusted() ? reason_for_distrust(real_path(path)) : "";
}

Check check_database(const std::string& path) {
  if (path == ":memory:") {
    return {"database", State::kWarning,
            "in memory only: winners and code are lost when the process ends",
            "set ATTNFORGE_CACHE to a file to keep them"};
  }
  if (const std::string objection = cache_objection(path); !objection.empty())
    return {"database", State::kFailed, objection, "plans go on without a database until then"};
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return {"database", State::kOk, fmt::format("{} does not exist yet and will be created", path),
            ""};
  }
  try {
    const CacheStats stats = cache_stats(path);
    Check check{
        "database", State::kOk,
        fmt::format("{}: schema {}, {}, {}, {}, {:.1f} MiB, journal {}", path, stats.schema_version,
                    counted(stats.problems, "problem", "problems"),
                    counted(stats.tries, "try", "tries"), counted(stats.cubins, "cubin", "cubins"),
                    static_cast<double>(stats.file_bytes) / (1 << 20), stats.journal_mode),
        ""};
    if (!stats.healthy) {
      check.state = State::kFailed;
      check.detail += "; damaged: " + stats.health;
      check.advice =
          "attnforge cache verify says more; the next look-up that meets the damage begins a new "
          "file with all that can be read, or do it by hand: attnforge cache export, move the file "
          "away, attnforge cache import";
    } else if (const std::string objection = network_objection(real_path(path));
               !objection.empty()) {
      check.state = State::kWarning;
      check.advice = objection;
    } else if (access(path.c_str(), W_OK) != 0) {
      check.state = State::kWarning;
      check.detail += "; read-only";
      check.advice =
          "winners are read but nothing new is stored; set ATTNFORGE_CACHE to another path to keep "
          "them";
    } else if (const std::string reason = trusted_all_the_same(path); !reason.empty()) {
      check.state = State::kWarning;
      check.detail += "; " + reason;
      check.advice = "it is used because of ATTNFORGE_CACHE_TRUST=any";
    }
    return check;
  } catch (const Error& error) {
    return {"database", State::kFailed, error.what(),
            "plans go on without it; move the file away to start a new one"};
  }
}

Check check_disk(const std::string& path) {
  const fs::path folder = existing_folder(path);
  std::error_code failed;
  const fs::space_info space = fs::space(folder, failed);
  if (failed) {
    return {"disk", State::kWarning,
            fmt::format("the space of {} is unknown: {}", folder.string(), failed.message()), ""};
  }
  Check check{"disk", State::kOk,
              fmt::format("{} MiB free in {}", space.available >> 20, folder.string()), ""};
  if (space.available < kLittleSpace) {
    check.state = State::kWarning;
    check.advice =
        "a search stores a few MiB of code: make room, or set ATTNFORGE_CACHE to another disk";
  }
  return check;
}

/// Throws what is wrong with a database that is only read.
void check_site(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw Error(ErrorCode::kIo,
                "there is no such file, and nobody makes it: attnforge tune --cache "
                "makes one, or unset the variable");
  const Check check = check_database(path);
  if (check.state == State::kFailed) throw Error(ErrorCode::kIo, check.detail);
}

Check check_variable(const std::string& name, const std::string& value) {
  Check check{"environment " + name, State::kOk, value, ""};
  try {
    if (name == "ATTNFORGE_LOG") log_level_from_environment();
    if (name == "ATTNFORGE_CACHE_WAL") wal_asked_for();
    if (name == "ATTNFORGE_CACHE_TRUST") anybody_is_trusted();
    if (name == "ATTNFORGE_SITE_CACHE") check_site(value);
    if (name == "ATTNFORGE_SHIPPED_WINNERS") read_winners(winners_named(value));
  } catch (const Error& error) {
    check.state = State::kFailed;
    check.advice = error.what();
  }
  return check;
}

/// What the switches for experiments do to every kernel. Nothing to say when none is set.
std::vector<Check> check_forced() {
  try {
    const std::string forced = forced_text(overrides_from_environment());
    if (forced.empty()) return {};
    return {
        {"kernels", State::kWarning, fmt::format("the environment decides: {}", forced),
         "unset the variables of experiments (docs/ENVIRONMENT.md) to have the fastest kernels"}};
  } catch (const Error& error) {
    return {{"kernels", State::kFailed, error.what(), "no device can be opened until then"}};
  }
}

}  // namespace

std::vector<Check> doctor(const std::string& cache_path) {
  const std::string path = asked_cache_path(cache_path);
  std::vector<Check> checks;
  checks.push_back({"attnforge", State::kOk,
                    fmt::format("version {}, {} kernel families", kVersion, list_families().size()),
                    ""});
  checks.push_back(check_driver());
  checks.push_back(check_nvrtc());
  checks.push_back(check_worker());
  for (Check& check : check_gpus()) checks.push_back(std::move(check));
  checks.push_back(check_database(path));
  if (path != ":memory:") checks.push_back(check_disk(path));
  for (const EnvironmentVariable& variable : environment_variables()) {
    // The others are the system's and say nothing of attnforge.
    if (variable.name.rfind("ATTNFORGE", 0) != 0) continue;
    const char* value = secure_getenv(variable.name.c_str());
    if (value != nullptr && *value != '\0') checks.push_back(check_variable(variable.name, value));
  }
  for (Check& check : check_forced()) checks.push_back(std::move(check));
  return checks;
}

}  // namespace attnforge
