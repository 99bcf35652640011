// doctor.cpp - attnforge doctor: what of this machine works, what does not, what to do.
#include <algorithm>
#include <cstdlib>

#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct DoctorArguments {
  std::string cache;
  bool json = false;
};

constexpr const char* kDoctorFooter =
    R"(Exits with 0 if nothing failed, with 5 if the driver, the GPU or NVRTC did, else with 1.

Examples:
  attnforge doctor
  attnforge doctor --json)";

struct StateWords {
  const char* name;
  std::string (*painted)(const std::string&);
};

StateWords state_words(Check::State state) {
  constexpr StateWords kWords[] = {{"ok", green}, {"warning", yellow}, {"failed", red}};
  return kWords[static_cast<std::size_t>(state)];
}

int doctor_exit_code(const std::vector<Check>& checks) {
  int code = kExitOk;
  for (const Check& check : checks) {
    if (check.state != Check::State::kFailed) continue;
    const bool machine = check.name == "driver" || check.name == "nvrtc" ||
                         check.name.starts_with("gpu");
    if (!machine) return kExitFailed;
    code = kExitNoDevice;
  }
  return code;
}

void print_report(const std::vector<Check>& checks) {
  write_out(fmt::format("{}\n", bold(fmt::format("attnforge {}", kVersion))));
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  for (const Check& check : checks) {
    const StateWords state = state_words(check.state);
    // Padded before it is painted: colours take no columns.
    write_out(fmt::format("{}  {:<{}}  {}\n", state.painted(fmt::format("{:<8}", state.name)),
                          check.name, width, hanging(printable_lines(check.detail), width + 12)));
    if (!check.advice.empty())
      write_out(fmt::format("{:{}}-> {}\n", "", width + 12, printable(check.advice)));
  }
  write_out("\nEnvironment variables and what they do: attnforge help environment\n");
}

Json report_json(const std::vector<Check>& checks) {
  return {{"attnforge", kVersion},
          {"checks", json_list(checks,
                               [](const Check& check) {
                                 return Json{{"name", check.name},
                                             {"state", state_words(check.state).name},
                                             {"detail", check.detail},
                                             {"advice", check.advice}};
                               })},
          {"environment", json_list(environment_variables(), [](const auto& variable) {
             const char* value = secure_getenv(variable.name.c_str());
             return Json{{"name", variable.name},
                         {"value", value ? Json(value) : Json(nullptr)},
                         {"fallback", variable.fallback},
                         {"meaning", variable.meaning}};
           })}};
}

}  // namespace

Verb add_doctor(Command& program) {
  auto arguments = std::make_shared<DoctorArguments>();
  Command& verb = *program.add_subcommand("doctor",
                                          "Check driver, NVRTC, database and disk; say what to do");
  add_cache_option(verb, arguments->cache);
  verb.add_flag("--json", arguments->json, "As JSON");
  verb.footer(kDoctorFooter);
  return [arguments] {
    const std::vector<Check> checks = doctor(arguments->cache);
    if (arguments->json) {
      print_json(report_json(checks));
    } else {
      print_report(checks);
    }
    return doctor_exit_code(checks);
  };
}

}  // namespace attnforge::cli
