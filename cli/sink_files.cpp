// sink_files.cpp - the logits of sinks from a file, and their gradients to one.
#include <span>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "cli/npy.h"
#include "cli/run_parts.h"

namespace attnforge::cli {
namespace {

[[noreturn]] void refuse_sinks(const char* why) { throw Error(ErrorCode::kInvalidArgument, why); }

class SinkFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    verb.add_option("--sinks", sinks_, "Logits of the word sinks: float32 [num_heads_q]")
        ->type_name("NPY");
    verb.add_option("--dsinks", dsinks_, "Of bwd: where their gradients go")->type_name("NPY");
  }
  void check(const Problem& problem, const RunFlags& flags) const override {
    if (!problem.sinks) {
      if (!sinks_.empty() || !dsinks_.empty())
        refuse_sinks("--sinks and --dsinks need a problem with the word sinks");
      return;
    }
    if (sinks_.empty() && !flags.random)
      refuse_sinks("--sinks is missing: the word sinks takes a logit for each query head");
    if (!dsinks_.empty() && !is_backward(problem))
      refuse_sinks("--dsinks needs a problem that begins with bwd");
  }
  void take(const Problem& problem, const RunFlags&, HostTensors& host) const override {
    if (sinks_.empty()) return;
    const std::int64_t shape[] = {problem.num_heads_q};
    host.sinks = read_floats(sinks_, shape, "[num_heads_q]");
  }
  void write(const Problem& problem, const RunFlags&, const HostTensors& host) const override {
    if (dsinks_.empty()) return;
    const std::int64_t shape[] = {problem.num_heads_q};
    write_npy(dsinks_, "<f4", shape, std::as_bytes(std::span(host.dsinks)));
  }

 private:
  std::string sinks_, dsinks_;
};

const ListedRunPart kListedSinkFiles(RunPartPlace::kSinks, make_run_part<SinkFiles>);

}  // namespace

}  // namespace attnforge::cli
