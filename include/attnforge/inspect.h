// inspect.h - look at what a problem becomes, hop by hop, for a GPU that is here or not; and at the
// machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/assembly_info.h"
#include "attnforge/measure.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"

namespace attnforge {

/// A config's text in words, for people: "fwd_wgmma_sm90a 2x64 x 128 keys, stages 2+2, ping-pong,
/// dynamic". Different configs have different words, but none can be made from them. A text that no
/// family knows is returned as it is.
ATTNFORGE_API std::string describe_config(const std::string& config);

struct FamilyInfo {
  std::string name{};
  std::string summary{};             // one line
  std::string tier{};                // "product", "ladder", "oracle"
  std::vector<std::string> archs{};  // those it can serve: "sm_86"
  std::vector<std::string> features{};
};
ATTNFORGE_API std::vector<FamilyInfo> list_families();

/// A point of a family's search space and what became of it.
struct CandidateInfo {
  std::string config{};
  double estimate_us = 0;
  std::string cut{};  // "" if kept, else why it was cut
};

/// Configs that were cut for reasons that differ only in numbers.
struct CutCount {
  int count = 0;
  CandidateInfo example{};  // the first of them
};

/// What the compiler made of one config.
struct CompileInfo {
  bool ok = false;
  std::string log{};  // compiler and assembler remarks
  double compile_ms = 0;
  int registers = 0;
  int spill_bytes = 0;    // stores + loads
  int smem_bytes = 0;     // dynamic, as launched
  int blocks_per_sm = 0;  // resident, by registers, shared memory and threads
  double occupancy = 0;   // resident warps / most an SM holds
  std::size_t cubin_bytes = 0;
};

struct LaunchInfo {
  std::string kernel{};
  // "main": the config's own kernel; "prepare": a step before it. After it: "second", another
  // kernel of the family; "merge", of split keys; "finish".
  std::string role{};
  int grid[3] = {1, 1, 1};
  int block[3] = {1, 1, 1};
  int smem_bytes = 0;
  std::size_t workspace_bytes = 0;  // of the whole run
  bool own = false;                 // whether the role is "main"
};

/// How a kernel cuts the problem up: a block computes block_m rows at a time, and walks over the
/// keys that they see block_n at a time. 0 where a family knows no such tiles.
struct TileInfo {
  int block_m = 0;
  int block_n = 0;
  int pack_gqa = 1;  // query heads in a tile of rows: a query is this many rows
};

/// How far from the GPU's limits a launch is, by what is known without running it. One whose grid
/// is smaller than the GPU leaves SMs idle, and they cannot ask for memory.
struct Reach {
  int busy_sms = 0;    // that get a block of the kernel; DeviceFacts::num_sms: all
  double time_us = 0;  // of the config: measured, else the model's estimate
  bool measured = false;
  Work work{};               // of what the time is of
  double minimum_bytes = 0;  // the same
  double memory_us = 0;      // these at the memory's full rate; 0: unknown
};

struct InspectOptions {
  std::string config{};  // "": the one that a plan would use
  std::string family{};
  std::string cache_path{};  // "": default; measured times come from there
  bool compile = true;
  bool ptx = false;
  bool sass = false;       // needs nvdisasm or cuobjdump on PATH
  bool line_info = false;  // ptx and sass (of nvdisasm) say which line of `source` they come from
  int max_candidates = 0;  // 0: all
  std::optional<Work>
      work{};  // of the problem's run, by who knows its tables; none: of the problem
  // false: Inspection::candidates are kept ones alone. Few query rows have hundreds of thousands of
  // others, which `cuts` counts.
  bool cut_candidates = true;
};

struct Inspection {
  Problem problem{};
  Work work{};
  SeenKeys sees{};
  DeviceFacts device{};
  std::vector<std::string> rejected_families{};  // "family: why it was not looked at"
  std::vector<CandidateInfo> candidates{};       // kept ones best first, then the cut ones
  std::string config{};
  Provenance provenance = Provenance::kEstimated;  // of the config
  Layer layer = Layer::kNone;                      // where it was found
  std::string why{};                               // why this config
  std::string slow_path{};     // what about the tensors makes it slow, and what to do; "": nothing
  std::string source_entry{};  // the generated lines
  std::string source{};        // the whole self-contained .cu, the command for nvcc first
  std::string digest{};
  AssemblyInfo assembly{};
  CompileInfo compiled{};
  std::string ptx{};
  std::string sass{};  // or why there is none
  TileInfo tiles{};
  std::vector<LaunchInfo> launches{};
  Work measured_work{};           // what `measured` took so long for
  Problem measured_as{};          // of whose bucket `measured` and `candidates` are
  std::vector<Trial> measured{};  // tries in the database, best first
  int num_estimates = 0;          // of rank_untuned() there
  int num_candidates = 0;         // kept and cut ones, listed or not
  int num_cut = 0;
  std::vector<CutCount> cuts{};  // of all cut ones, the most frequent first
  std::string not_compiled{};    // why there is no `compiled`; "": there is
  Reach reach{};
};
/// Throws as make_plan does. Needs NVRTC only if options.compile. Works without a driver.
ATTNFORGE_API Inspection inspect(const Problem& problem, const DeviceFacts& device,
                                 const InspectOptions& options = {});

/// The digest that the kernel of `config` has today for the bucket's problem `problem`: another one
/// in a database is of a template that was changed since. "" if either is not known today.
ATTNFORGE_API std::string digest_today(std::string_view problem, std::string_view config);

/// Compiles the model's first `count` candidates, ranks them by the model and by what the compiler
/// said, and stores them in the database as estimates. For machines without the GPU. `cancelled` is
/// asked often: true ends it after the compiles in flight, with what was compiled until then.
struct RankedCandidate {
  std::string config{};
  double estimate_us = 0;
  CompileInfo compiled{};
};
ATTNFORGE_API std::vector<RankedCandidate> rank_untuned(
    const Problem& problem, const DeviceFacts& device, int count,
    const std::string& cache_path = "", const ProgressFunction& on_progress = {},
    const std::function<bool()>& cancelled = {});

/// One line of the report on this machine: what was looked at, how it stands, what to do.
struct Check {
  std::string
      name{};  // "driver", "nvrtc", "database", "disk", "gpu 0", "environment ATTNFORGE_LOG"
  enum class State { kOk, kWarning, kFailed } state = State::kOk;
  std::string detail{};
  std::string advice{};  // "" when nothing is to be done
};
ATTNFORGE_API std::vector<Check> doctor(const std::string& cache_path = "");

/// Every environment variable that attnforge reads.
struct EnvironmentVariable {
  std::string name{};
  std::string meaning{};
  std::string fallback{};  // when unset
};
ATTNFORGE_API const std::vector<EnvironmentVariable>& environment_variables();

}  // namespace attnforge
