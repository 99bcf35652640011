#include "tuner/evaluator.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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
        device_(device),
        cache_(cache),
        compilers_(std::move(compilers)),
        overrides_(overrides),
        trials_(std::move(trials)),
        pool_(compile_threads) {}

  std::string digest_of(const Candidate& candidate) override {
    std::string& known = digests_[to_string(candidate.config)];
    if (known.empty()) known = digest(source_of(candidate));
    return known;
  }

  void prepare(std::span<const Candidate> candidates, const std::function<bool()>& keep_going,
               const std::function<void(std::size_t, const Measurement&)>& on_done) override {
    const std::vector<Kin> kins = kins_of(candidates);
    // The first batch waits for the tuner's own kernels.
    std::vector<Source> own;
    if (!std::exchange(own_asked_for_, true)) own = own_sources(problem_, device_);
    own_left_ += own.size();
    bool wanted = true;
    const auto go_on = [&] {
      const bool begun = lost() == nullptr && trials_->start();
      if (begun && lost() == nullptr && own_left_ == 0) trials_->get_ready(own_code_);
      wanted = wanted && lost() == nullptr && keep_going();
      return wanted;
    };
    std::vector<std::pair<std::size_t, Compiled>> early;  // before the tuner's own were there
    const auto take = [&](const Kin& kin, Compiled&& compiled) {
      std::shared_ptr<const Compiled>& code = codes_[kin.digest];
      if (!kin.code) code = std::make_shared<const Compiled>(std::move(compiled));
      for (const std::size_t each : kin.members) {
        // A load, too, would wait for a kernel without end.
        if (each != kin.members.front() && !go_on()) return;
        on_done(each, load(candidates[each], code));
      }
    };
    pool_.run(
        own.size() + kins.size(),
        [this, own, kins](std::size_t index, const std::atomic<bool>& unwanted) {
          if (index < own.size()) return compiled([&] { return own[index]; }, unwanted);
          const Kin& kin = kins[index - own.size()];
          return kin.code ? Compiled{} : compiled([&] { return source_of(kin.first); }, unwanted);
        },
        go_on,
        [&](std::size_t index, Compiled&& compiled) {
          if (compiled.trouble) std::rethrow_exception(compiled.trouble);
          if (index >= own.size()) {
            early.emplace_back(index - own.size(), std::move(compiled));
          } else {
            take_own(std::move(compiled));
          }
          if (!own.empty() && own_left_ > 0) return;
          for (auto& [place, code] : std::exchange(early, {})) {
            if (!go_on()) return;
            take(kins[place], std::move(code));
          }
        });
  }

  Measurement prove(const Config& config) override { return trials_->prove(config); }
  std::vector<double> sample_us(std::span<const Config> order, Sizes sizes) override {
    return trials_->sample_us(order, sizes);
  }
  void heat(std::span<const Config> configs) override { trials_->heat(configs); }
  double clock_mhz() override { return trials_->clock_mhz(); }
  const Loss* lost() const override { return trials_->lost(); }

  void keep(const Config& config) override {
    const auto it = prepared_.find(to_string(config));
    ATTNFORGE_ASSERT(it != prepared_.end(), "only a prepared candidate can be kept");
    const Compiled& compiled = *it->second.code;
    cache_.put_cubin(compiled.cubin, compiled.source.text, compiled.source.name);
  }

  void release(const Config& config) override {
    trials_->release(config);
    if (lost() == nullptr) prepared_.erase(to_string(config));
  }

 private:
  /// Candidates of one batch that have one source: they differ in how it is launched.
  struct Kin {
    std::string digest;
    Candidate first;
    std::vector<std::size_t> members;
    bool code = false;  // it is there, of an earlier batch
  };

  std::vector<Kin> kins_of(std::span<const Candidate> candidates) {
    std::vector<Kin> kins;
    std::map<std::string, std::size_t> place;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::string digest = digest_of(candidates[i]);
      const auto [it, news] = place.emplace(digest, kins.size());
      if (news) kins.push_back({digest, candidates[i], {}, codes_.contains(digest)});
      kins[it->second].members.push_back(i);
    }
    return kins;
  }

  Source source_of(const Candidate& candidate) const {
    return render(*candidate.family, candidate.config, problem_, overrides_);
  }

  /// On the pool's threads: no CUDA context, nothing that is not const or thread-safe.
  Compiled compiled(const std::function<Source()>& source,
                    const std::atomic<bool>& unwanted) const {
    Compiled result;
    try {
      result.source = source();
      std::optional<Cubin> known = cache_.get_cubin(digest(result.source), device_.arch.name,
                                                    nvrtc_facts().version_text());
      result.cubin = known        ? *std::move(known)
                     : compilers_ ? compilers_->compile(result.source, device_.arch, unwanted)
                                  : compile(result.source, device_.arch, {.unwanted = &unwanted});
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

  /// One that does not compile here is left to the trials, which say why.
  void take_own(Compiled&& compiled) {
    --own_left_;
    if (compiled.failure.status == Status::kOk)
      own_code_[digest(compiled.source)] = std::move(compiled.cubin);
  }

  Measurement load(const Candidate& candidate, std::shared_ptr<const Compiled> code) {
    if (code->failure.status != Status::kOk) return code->failure;
    const auto [it, added] = prepared_.insert_or_assign(to_string(candidate.config),
                                                        Prepared{candidate, std::move(code)});
    const Measurement result = trials_->load(it->second.candidate, *it->second.code, 0);
    if (result.status != Status::kOk) release(candidate.config);
    return result;
  }

  struct Prepared {
    Candidate candidate;
    std::shared_ptr<const Compiled> code;
  };

  const Problem problem_;
  const DeviceFacts device_;
  Cache& cache_;
  const std::unique_ptr<CompileWorkers> compilers_;
  const Overrides overrides_;
  std::map<std::string, std::string> digests_;                    // by config
  std::map<std::string, std::shared_ptr<const Compiled>> codes_;  // by digest, failures too
  std::map<std::string, Prepared> prepared_;                      // trials_ borrows from it
  std::unique_ptr<Trials> trials_;
  bool own_asked_for_ = false;  // of the pool
  std::size_t own_left_ = 0;    // that have not arrived
  OwnCode own_code_;
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
