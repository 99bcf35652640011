#include "tuner/evaluator.h"

#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "attnforge/error.h"
#include "runtime/compile/compiler.h"
#include "tuner/compile_pool.h"

namespace attnforge {
namespace {

class CandidateEvaluator : public Evaluator {
 public:
  CandidateEvaluator(const Problem& problem, const DeviceFacts& device, Cache& cache,
                     std::unique_ptr<Trials> trials, std::unique_ptr<CompileWorkers> compilers,
                     int compile_threads, const Overrides& overrides)
      : problem_(problem),
        arch_(device.arch),
        cache_(cache),
        compilers_(std::move(compilers)),
        overrides_(overrides),
        trials_(std::move(trials)),
        pool_(compile_threads) {}

  std::string digest_of(const Candidate& candidate) override {
    return digest(render(*candidate.family, candidate.config, problem_, overrides_));
  }

  void prepare(std::span<const Candidate> candidates, const std::function<bool()>& keep_going,
               const std::function<void(std::size_t, const Measurement&)>& on_done) override {
    const std::vector<Candidate> batch(candidates.begin(), candidates.end());
    pool_.run(
        batch.size(),
        [this, batch](std::size_t index, const std::atomic<bool>& unwanted) {
          return compile_candidate(batch[index], unwanted);
        },
        [&] {
          if (lost() == nullptr) trials_->get_ready();  // while the first kernels compile
          return lost() == nullptr && keep_going();
        },
        [&](std::size_t index, Compiled&& compiled) {
          if (compiled.trouble) std::rethrow_exception(compiled.trouble);
          if (lost() != nullptr) return;  // a load, too, would wait for a kernel without end
          on_done(index, load(batch[index], std::move(compiled)));
        });
  }

  Measurement prove(const Config& config) override { return trials_->prove(config); }
  std::vector<double> sample_us(std::span<const Config> order) override {
    return trials_->sample_us(order);
  }
  void heat(std::span<const Config> configs) override { trials_->heat(configs); }
  double clock_mhz() override { return trials_->clock_mhz(); }
  const Loss* lost() const override { return trials_->lost(); }

  void keep(const Config& config) override {
    const auto it = prepared_.find(to_string(config));
    ATTNFORGE_ASSERT(it != prepared_.end(), "only a prepared candidate can be kept");
    const Compiled& compiled = it->second.compiled;
    cache_.put_cubin(compiled.cubin, compiled.source.text, compiled.source.name);
  }

  void release(const Config& config) override {
    trials_->release(config);
    if (lost() == nullptr) prepared_.erase(to_string(config));
  }

 private:
  /// On the pool's threads: no CUDA context, nothing that is not const or thread-safe.
  Compiled compile_candidate(const Candidate& candidate, const std::atomic<bool>& unwanted) const {
    Compiled result;
    try {
      result.source = render(*candidate.family, candidate.config, problem_, overrides_);
      std::optional<Cubin> known = cache_.get_cubin(digest(result.source), arch_.name,
                                                    nvrtc_facts().version_text());
      result.cubin = known        ? *std::move(known)
                     : compilers_ ? compilers_->compile(result.source, arch_, unwanted)
                                  : compile(result.source, arch_, {.unwanted = &unwanted});
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCompile) {
        result.failure = failed(Status::kCompileError, error.what());
      } else {
        result.trouble = std::current_exception();
      }
    } catch (...) {
      result.trouble = std::current_exception();
    }
    return result;
  }

  Measurement load(const Candidate& candidate, Compiled&& compiled) {
    if (compiled.failure.status != Status::kOk) return compiled.failure;
    const std::string config = to_string(candidate.config);
    const auto [it, added] = prepared_.insert_or_assign(config,
                                                        Prepared{candidate, std::move(compiled)});
    const Measurement result = trials_->load(it->second.candidate, it->second.compiled, 0);
    if (result.status != Status::kOk) release(candidate.config);
    return result;
  }

  struct Prepared {
    Candidate candidate;
    Compiled compiled;
  };

  const Problem problem_;
  const Arch arch_;
  Cache& cache_;
  const std::unique_ptr<CompileWorkers> compilers_;
  const Overrides overrides_;
  std::map<std::string, Prepared> prepared_;  // trials_ borrows from it
  std::unique_ptr<Trials> trials_;
  CompilePool pool_;  // last: its threads use what is above
};

}  // namespace

std::unique_ptr<Evaluator> make_evaluator(const Problem& problem, const DeviceFacts& device,
                                          Cache& cache, std::unique_ptr<Trials> trials,
                                          std::unique_ptr<CompileWorkers> compilers,
                                          int compile_threads, const Overrides& overrides) {
  return std::make_unique<CandidateEvaluator>(problem, device, cache, std::move(trials),
                                              std::move(compilers), compile_threads, overrides);
}

}  // namespace attnforge
