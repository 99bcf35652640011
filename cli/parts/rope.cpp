// rope.cpp - the tables of a rope from files.
#include <fmt/format.h>

#include <limits>
#include <string>

#include "attnforge/error.h"
#include "cli/files/npy.h"
#include "cli/options/option_values.h"
#include "cli/parts/part.h"
#include "cli/verbs/memory_check.h"

namespace attnforge::cli {

std::vector<float> read_rope_table(const std::string& path, const Problem& problem);

/// fp32 [rows, rope_dim / 2].
std::vector<float> read_rope_table(const std::string& path, const Problem& problem) {
  const std::int64_t pairs = effective_rope_dim(problem) / 2;
  const std::int64_t shape[] = {kAnySize, pairs};
  return read_floats(path, shape, fmt::format("[rows, {}] for rope_dim={}", pairs, 2 * pairs));
}

namespace {

class RopeFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    verb.add_option("--rope-cos", cos_, "Cosines of a rope: float32 [rows, rope_dim / 2]")
        ->type_name("NPY");
    verb.add_option("--rope-sin", sin_, "Sines")->type_name("NPY");
    verb.add_option("--rope-offset", offset_, "Row of the tables that the first key takes")
        ->type_name("N")
        ->transform(whole_number(0, std::numeric_limits<std::int64_t>::max()));
  }
  const char* help() const override {
    return "Tables of a rope are float32 [rows, rope_dim / 2]; without them they are those of base "
           "10000, as many rows\nas the problem takes.\n";
  }
  void check(const Problem& problem, const RunFlags&) const override {
    const auto refuse = [](const char* why) { throw Error(ErrorCode::kInvalidArgument, why); };
    if (cos_.empty() != sin_.empty())
      refuse("--rope-cos and --rope-sin belong together; give both or none");
    if (problem.rope == Rope::kNone && (!cos_.empty() || offset_ >= 0)) {
      refuse(
          "--rope-cos, --rope-sin and --rope-offset need a problem with rope=half or "
          "rope=interleaved");
    }
    if (offset_ < 0) return;
    check_rope_offset(problem, offset_);
    if (!cos_.empty()) return;
    const auto rows = static_cast<double>(offset_) + static_cast<double>(problem.seqlen_kv);
    require_host_bytes("tables of the rope up to the rows of --rope-offset",
                       rows * effective_rope_dim(problem) * sizeof(float));
  }
  void take(const Problem& problem, const RunFlags&, HostTensors& host) const override {
    if (cos_.empty()) {
      if (offset_ >= 0) set_rope_tables(problem, host, 10000, offset_);
      return;
    }
    if (offset_ >= 0) host.rope_offset = offset_;
    host.rope_cos = read_rope_table(cos_, problem);
    host.rope_sin = read_rope_table(sin_, problem);
  }

 private:
  std::string cos_, sin_;
  std::int64_t offset_ = -1;  // -1: not given
};

}  // namespace

std::unique_ptr<RunPart> rope_part() { return std::make_unique<RopeFiles>(); }

}  // namespace attnforge::cli
