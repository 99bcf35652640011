// main.cpp - the program attnforge: finds the verb, runs it, turns errors into one line and an exit
// code.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "attnforge/tune.h"
#include "cli/verbs/memory_check.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {

ExitCode exit_code(ErrorCode code) {
  if (code == kInvalidProblem || code == kInvalidArgument) return kExitUsage;
  if (code == kUnsupported) return kExitUnsupported;
  return code == kNoDriver ? kExitNoDevice : kExitFailed;
}

namespace {

constexpr const char* kProgramFooter = R"(A problem is a list of words, quoted or not:
  fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal
Exit codes: 0 done, 1 failed, 2 bad command line or problem, 3 no kernel serves the problem, 4 run --check found a
wrong output, 5 no GPU, driver or NVRTC, 130 interrupted.

Examples:
  attnforge tune fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal
  attnforge run --q q.npy --k k.npy --v v.npy --o o.npy causal --check
  attnforge inspect --arch sm_86 fwd fp16 seqlen=1024 head_dim=64
  attnforge help problem                             (every word of a problem)
  attnforge VERB --help)";

void print_error(const std::string& message) { say("attnforge: " + message); }

/// Output that did not reach its file (disk full, closed pipe) is a failure, however well the verb
/// went.
int with_flushed_output(int code) {
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed) return code;
  print_error("the output could not be written to standard output; is the disk full?");
  return code == kExitOk ? kExitFailed : code;
}

int run_program(int argc, char** argv) {
  Command app("Tunes, runs and explains attention kernels for the NVIDIA GPU at hand.",
              "attnforge");
  app.set_version_flag("--version", fmt::format("attnforge {}", kVersion));
  app.require_subcommand(1);
  app.footer(kProgramFooter);
  // Verbs inherit it.
  const auto formatter = app.get_formatter();
  app.formatter_fn([formatter](const Command* command, std::string name, CLI::AppFormatMode mode) {
    return wrapped_help(formatter->make_help(command, std::move(name), mode), help_columns());
  });

  const std::pair<const char*, Verb> verbs[] = {{"tune", add_tune(app)},
                                                {"run", add_run(app)},
                                                {"bench", add_bench(app)},
                                                {"inspect", add_inspect(app)},
                                                {"report", add_report(app)},
                                                {"list", add_list(app)},
                                                {"cache", add_cache(app)},
                                                {"doctor", add_doctor(app)},
                                                {"completion", add_completion(app)},
                                                {"help", add_help(app)}};
  refuse_empty_values(app);
  if (argc <= 1) {
    // Nothing was asked for: to a person this is the answer, to a script that lost its words it is
    // an error, as of most programs with verbs.
    std::fputs(app.help().c_str(), stderr);
    return kExitUsage;
  }
  std::string wrong;
  switch (parse(app, argc, argv, wrong)) {
    case Parsed::kShown:
      return with_flushed_output(kExitOk);
    case Parsed::kWrong: {
      const Command* verb = parsed_verb(app);
      print_error(fmt::format("{}{} attnforge {}--help", wrong,
                              wrong.ends_with('?') ? " See" : "; see",
                              verb == nullptr ? "" : verb->get_name() + " "));
      return kExitUsage;
    }
    case Parsed::kVerb:
      break;
  }
  for (const auto& [name, verb] : verbs) {
    if (parsed_verb(app)->get_name() != name) continue;
    try {
      return with_flushed_output(verb());
    } catch (const Error& error) {
      std::fflush(stdout);
      print_error(error.what());
      return exit_code(error.code());
    } catch (const std::exception& error) {
      std::fflush(stdout);
      const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
      print_error(fmt::format("{} failed: {}", name, no_memory ? no_host_memory() : error.what()));
      return kExitFailed;
    }
  }
  return kExitUsage;  // not reached: a subcommand is required
}

}  // namespace
}  // namespace attnforge::cli

int main(int argc, char** argv) {
  attnforge::cli::hold_standard_files();
  // Not a verb for people: searches start it (attnforge/tune.h).
  if (argc == 4 && std::string_view(argv[1]) == "worker")
    std::_Exit(attnforge::serve_search(argv[2], std::atoi(argv[3])));
  return attnforge::cli::run_program(argc, argv);
}
