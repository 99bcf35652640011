// serve.h - what a worker does with the messages of its supervisor, and the messages of both sides.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "generator/candidates.h"
#include "generator/cubin.h"
#include "generator/source.h"
#include "tuner/trials/gpu_trials.h"
#include "tuner/worker/channel.h"
#include "tuner/worker/process.h"

namespace attnforge {

/// Counts changes of what the messages below say, or of how they are answered.
inline constexpr int kWorkerProtocol = 2;

// A worker first answers to "compile" or "begin", which have the identity of the supervisor's
// build.
Message compile_request(const std::string& identity, const Source& source, const Arch& arch);
/// From the answer. Throws as compile().
Cubin compiled(const Message& answer, const Source& source, const Arch& arch);

Message begin_request(const std::string& identity, const Problem& problem,
                      const DeviceFacts& device, const TrialOptions& options);
/// After "begin": the tuner's own kernels; answered when proofs can begin.
Message ready_request(const OwnCode& code);
Message load_request(const Candidate& candidate, const Compiled& compiled, double rough_us);
/// "prove", "sample", "sample asked", "heat" or "release".
Message request(const char* what, std::span<const Config> configs);
/// Throws what the worker met where that is an Error of the problem, not of a candidate.
void throw_trouble(const Message& answer);

/// Answers until the supervisor is gone. `identity` is of this build. Returns the exit code of the
/// process, which should end at once, without what a normal end does: a kernel may still run.
/// `family_of` finds a family by its name; nullptr: there is none.
int serve(WorkerRole role, const std::string& identity,
          const std::function<const Family*(std::string_view)>& family_of);

}  // namespace attnforge
