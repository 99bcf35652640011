// sinks.cpp - the logits of sinks from a file.
#include <cstdint>
#include <string>

#include "attnforge/error.h"
#include "cli/files/npy.h"
#include "cli/parts/part.h"

namespace attnforge::cli {
namespace {

[[noreturn]] void refuse_sinks(const char* why) { throw Error(ErrorCode::kInvalidArgument, why); }

class SinkFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    verb.add_option("--sinks", sinks_, "Logits of the word sinks: float32 [num_heads_q]")
        ->type_name("NPY");
  }
  void check(const Problem& problem, const RunFlags& flags) const override {
    if (!problem.sinks) {
      if (!sinks_.empty()) refuse_sinks("--sinks needs a problem with the word sinks");
      return;
    }
    if (sinks_.empty() && !flags.random)
      refuse_sinks("--sinks is missing: the word sinks takes a logit for each query head");
  }
  void take(const Problem& problem, const RunFlags&, HostTensors& host) const override {
    if (sinks_.empty()) return;
    const std::int64_t shape[] = {problem.num_heads_q};
    host.sinks = read_floats(sinks_, shape, "[num_heads_q]");
  }

 private:
  std::string sinks_;
};

}  // namespace

std::unique_ptr<RunPart> sink_part() { return std::make_unique<SinkFiles>(); }

}  // namespace attnforge::cli
