#include "tuner/worker/serve.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "attnforge/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/device.h"

namespace attnforge {
namespace {

constexpr double kForEver = 1e6;

Message error_message(const Error& error) {
  return {"error", std::to_string(static_cast<int>(error.code())), error.what()};
}

std::string bytes_as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
int int_of(const std::string& text) { return static_cast<int>(number_of(text)); }

void require_identity(const Message& message, const std::string& own) {
  if (message.size() > 1 && message[1] == own) return;
  throw Error(ErrorCode::kNoDriver,
              "the program attnforge beside the library, which serves it as worker, is of another "
              "build: install both again, or name the right one by ATTNFORGE_WORKER");
}

/// Ends this process, whatever it is at, as soon as the supervisor's end of the socket is closed;
/// one that another child of the supervisor has inherited stays open when the supervisor is gone.
void end_with_supervisor() {
  std::thread([supervisor = getppid()] {
    constexpr int kLookMs = 1000;
    pollfd polled{STDIN_FILENO, POLLRDHUP, 0};
    while (poll(&polled, 1, kLookMs) <= 0 && getppid() == supervisor) {
    }
    _exit(0);
  }).detach();
}

/// What the worker does for its supervisor.
class Server {
 public:
  Server(const std::string& identity,
         const std::function<const Family*(std::string_view)>& family_of)
      : identity_(identity), family_of_(family_of) {}

  Message answer(const Message& request) {
    const std::string& what = request.front();
    if (what == "compile") return compile_source(request);
    if (what == "begin") return begin(request);
    ATTNFORGE_ASSERT(trials_ != nullptr, "a supervisor begins before it goes on");
    if (what == "ready") return get_ready(request);
    if (what == "load") return load(request);
    std::vector<Config> configs;
    for (std::size_t i = 1; i < request.size(); ++i) configs.push_back(parse_config(request[i]));
    Message answer = {"done"};
    if (what == "prove") {
      append(answer, trials_->prove(configs.at(0)));
    } else if (what == "sample" || what == "sample asked") {
      const std::vector<double> times = trials_->sample_us(
          configs, what == "sample" ? Sizes::kBucket : Sizes::kAsked);
      answer.push_back(text_of(trials_->clock_mhz()));
      for (double time_us : times) answer.push_back(text_of(time_us));
    } else if (what == "heat") {
      trials_->heat(configs);
      answer.push_back(text_of(trials_->clock_mhz()));
    } else {
      ATTNFORGE_ASSERT(what == "release", "a supervisor says what a worker knows");
      trials_->release(configs.at(0));
      known_.erase(request.at(1));
    }
    return with_loss(std::move(answer));
  }

 private:
  struct Known {
    Candidate candidate;
    Compiled compiled;
  };

  Message compile_source(const Message& request) {
    require_identity(request, identity_);
    Source source;
    source.name = request.at(3);
    source.text = request.at(4);
    source.options.assign(request.begin() + 5, request.end());
    const Cubin cubin = compile(source, typical_device(request.at(2)).arch);
    return {"code",
            bytes_as_text(cubin.bytes),
            std::to_string(cubin.registers),
            std::to_string(cubin.smem_static_bytes),
            std::to_string(cubin.stack_bytes),
            std::to_string(cubin.spill_store_bytes),
            std::to_string(cubin.spill_load_bytes),
            cubin.wgmma_serialized ? "1" : "0",
            text_of(cubin.compile_ms),
            cubin.log,
            cubin.nvrtc};
  }

  Message begin(const Message& request) {
    require_identity(request, identity_);
    problem_ = parse_problem(request.at(2));
    const std::string& uuid = request.at(4);
    int ordinal = int_of(request.at(3));
    // The supervisor may have another idea of which GPUs are visible than the environment has now.
    if (ordinal >= device_count() || device_facts(ordinal).uuid != uuid) {
      for (ordinal = 0; ordinal < device_count(); ++ordinal)
        if (device_facts(ordinal).uuid == uuid) break;
      if (ordinal == device_count())
        throw Error(ErrorCode::kCuda, "a worker does not see the GPU " + uuid +
                                          "; was CUDA_VISIBLE_DEVICES changed?");
    }
    device_ = device_facts(ordinal);
    device_.arch.smem_per_block_bytes = int_of(request.at(5));
    primary_ = std::make_unique<PrimaryContext>(ordinal);
    scope_ = std::make_unique<ScopedContext>(*primary_);
    TrialOptions options{.seed = static_cast<unsigned>(number_of(request.at(6))),
                         .hang_least_s = number_of(request.at(7))};
    if (!request.at(8).empty()) options.asked = parse_problem(request.at(8));
    trials_ = make_gpu_trials(problem_, device_, options);
    return {"done"};
  }

  Message get_ready(const Message& request) {
    OwnCode code;
    for (std::size_t i = 1; i + 1 < request.size(); i += 2)
      code[request[i]].bytes = bytes_of(request[i + 1]);
    trials_->get_ready(code);
    return {"done"};
  }

  Message load(const Message& request) {
    Config config = parse_config(request.at(1));
    const Family* const family = family_of_(config.family);
    if (family == nullptr)
      throw Error(ErrorCode::kInternal, "a worker knows no family " + config.family);
    Known known{{family, std::move(config), number_of(request.at(2))}, {}};
    known.compiled.cubin.bytes = bytes_of(request.at(4));
    known.compiled.source.name = request.at(5);
    for (std::size_t i = 6; i + 1 < request.size(); i += 2)
      known.compiled.source.renamed.emplace_back(request[i], request[i + 1]);
    const Known& kept = known_[request.at(1)] = std::move(known);
    Message answer = {"done"};
    append(answer, trials_->load(kept.candidate, kept.compiled, number_of(request.at(3))));
    return with_loss(std::move(answer));
  }

  /// Of a worker that is lost the supervisor takes only why.
  Message with_loss(Message answer) const {
    const Loss* const loss = trials_->lost();
    if (loss == nullptr) return answer;
    Message lost = {"lost"};
    append(lost, loss->measurement);
    lost.push_back(loss->config);
    return lost;
  }

  const std::string& identity_;
  const std::function<const Family*(std::string_view)>& family_of_;
  Problem problem_;
  DeviceFacts device_;
  std::unique_ptr<PrimaryContext> primary_;
  std::unique_ptr<ScopedContext> scope_;
  std::map<std::string, Known> known_;  // trials_ borrows from it
  std::unique_ptr<Trials> trials_;
};

}  // namespace

Message compile_request(const std::string& identity, const Source& source, const Arch& arch) {
  Message request = {"compile", identity, std::string(arch.name), source.name, source.text};
  request.insert(request.end(), source.options.begin(), source.options.end());
  return request;
}

Cubin compiled(const Message& answer, const Source& source, const Arch& arch) {
  throw_trouble(answer);
  ATTNFORGE_ASSERT(answer.size() == 11 && answer.front() == "code", "a compile gives code");
  Cubin cubin;
  cubin.bytes = bytes_of(answer[1]);
  cubin.registers = int_of(answer[2]);
  cubin.smem_static_bytes = int_of(answer[3]);
  cubin.stack_bytes = int_of(answer[4]);
  cubin.spill_store_bytes = int_of(answer[5]);
  cubin.spill_load_bytes = int_of(answer[6]);
  cubin.wgmma_serialized = answer[7] == "1";
  cubin.compile_ms = number_of(answer[8]);
  cubin.log = answer[9];
  cubin.nvrtc = answer[10];
  cubin.arch = arch.name;
  cubin.source_digest = digest(source);
  return cubin;
}

Message begin_request(const std::string& identity, const Problem& problem,
                      const DeviceFacts& device, const TrialOptions& options) {
  return {"begin",
          identity,
          to_string(problem),
          std::to_string(device.ordinal),
          device.uuid,
          std::to_string(device.arch.smem_per_block_bytes),
          std::to_string(options.seed),
          text_of(options.hang_least_s),
          options.asked ? to_string(*options.asked) : ""};
}

Message ready_request(const OwnCode& code) {
  Message request = {"ready"};
  for (const auto& [digest, cubin] : code) {
    request.push_back(digest);
    request.push_back(bytes_as_text(cubin.bytes));
  }
  return request;
}

Message load_request(const Candidate& candidate, const Compiled& compiled, double rough_us) {
  Message request = {"load",
                     to_string(candidate.config),
                     text_of(candidate.estimate_us),
                     text_of(rough_us),
                     bytes_as_text(compiled.cubin.bytes),
                     compiled.source.name};
  for (const auto& [own, now] : compiled.source.renamed) {
    request.push_back(own);
    request.push_back(now);
  }
  return request;
}

Message request(const char* what, std::span<const Config> configs) {
  Message message = {what};
  for (const Config& config : configs) message.push_back(to_string(config));
  return message;
}

void throw_trouble(const Message& answer) {
  if (answer.size() == 3 && answer.front() == "error")
    throw Error(static_cast<ErrorCode>(int_of(answer[1])), answer[2]);
}

int serve(WorkerRole role, const std::string& identity,
          const std::function<const Family*(std::string_view)>& family_of) {
  Channel channel(STDIN_FILENO);
  end_with_supervisor();
  Server server(identity, family_of);
  if (role == WorkerRole::kCompile) nvrtc_facts();  // opens it while nothing is asked
  Message message;
  while (channel.receive(message, kForEver) == Channel::Got::kMessage) {
    Message answer;
    try {
      answer = server.answer(message);
    } catch (const Error& error) {
      answer = error_message(error);
    } catch (const std::exception& error) {
      answer = error_message(Error(ErrorCode::kInternal, error.what()));
    }
    if (!channel.send(answer, kSendSeconds)) break;
  }
  return 0;
}

}  // namespace attnforge
