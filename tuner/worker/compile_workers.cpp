#include "tuner/worker/compile_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "attnforge/error.h"
#include "tuner/worker/serve.h"

namespace attnforge {
namespace {

constexpr double kLimitLongest = 10;
constexpr double kAskSeconds = 0.02;

[[noreturn]] void refuse(const Source& source, const std::string& why) {
  throw Error(ErrorCode::kCompile, fmt::format("{} was not compiled: {}", source.name, why));
}

}  // namespace

std::unique_ptr<WorkerProcess> CompileWorkers::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<WorkerProcess> worker = std::move(idle_.back());
      idle_.pop_back();
      return worker;
    }
  }
  return std::make_unique<WorkerProcess>(program_, WorkerRole::kCompile);
}

Cubin CompileWorkers::compile(const Source& source, const Arch& arch,
                              const std::atomic<bool>& unwanted) {
  using Clock = std::chrono::steady_clock;
  double limit_s = limit_s_;
  {
    const std::lock_guard lock(mutex_);
    limit_s = std::max(limit_s, kLimitLongest * longest_s_);
  }
  const Message request = compile_request(program_.identity, source, arch);
  std::unique_ptr<WorkerProcess> worker = take();
  worker->channel().send(request, kSendSeconds);  // one that is gone shows below
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Message answer;
  for (;;) {
    const Channel::Got got = worker->channel().receive(answer, kAskSeconds);
    if (got == Channel::Got::kMessage) break;
    if (got == Channel::Got::kGone)
      refuse(source, fmt::format("the compiler's process {} after {:.1f} s; other kernels are not "
                                 "affected",
                                 worker->end(), seconds()));
    if (unwanted) refuse(source, "it is not wanted any more");
    if (seconds() > limit_s) refuse(source, fmt::format("no end after {:.0f} s", seconds()));
  }
  {
    const std::lock_guard lock(mutex_);
    longest_s_ = std::max(longest_s_, seconds());
    idle_.push_back(std::move(worker));
  }
  return compiled(answer, source, arch);
}

}  // namespace attnforge
