// help.cpp - attnforge help: a verb's options, or what no verb says alone: the words of a problem
// and the environment variables.
#include <algorithm>
#include <cstdlib>

#include "attnforge/problem_words.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

constexpr const char* kHelpFooter = R"(Examples:
  attnforge help problem
  attnforge help environment
  attnforge help tune)";

std::string problem_help() {
  std::string text =
      "A problem is its operation, such as fwd, and these words, in any order, quoted or not. What "
      "is left out has its default.\n"
      "  fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal\n\n";
  for (const ProblemWord& word : problem_words()) {
    text += fmt::format("  {}{}\n", bold(fmt::format("{:<20}", word.form)), word.meaning);
    if (!word.allowed.empty()) {
      text += fmt::format("{:22}{}; default {}\n", "", word.allowed, word.fallback);
    } else {
      text += fmt::format("{:22}default {}\n", "", word.fallback);
    }
  }
  return text +
         "\ntune and bench take several problems, and several values of a word: seqlen=512,1024 "
         "causal,full\n";
}

std::string environment_help() {
  std::string text;
  for (const EnvironmentVariable& variable : environment_variables()) {
    const char* value = secure_getenv(variable.name.c_str());
    text += fmt::format("{}={}\n    {}\n    unset: {}\n", bold(variable.name),
                        value ? printable(value) : "(unset)", variable.meaning, variable.fallback);
  }
  return text;
}

}  // namespace

Verb add_help(Command& program) {
  auto topic = std::make_shared<std::string>();
  Command& verb = *program.add_subcommand(
      "help", "Explain a verb, the words of a problem, or the environment variables");
  add_value(verb, "topic TOPIC", *topic, "A verb, problem or environment");
  verb.footer(kHelpFooter);
  // Asked for now: after parsing, a program's help is that of the verb at hand.
  return [&program, topic, all = program.help()] {
    const std::vector<Command*> verbs = program.get_subcommands([](Command*) { return true; });
    const auto verb = std::ranges::find(verbs, *topic, &Command::get_name);
    if (topic->empty()) {
      write_out(all);
    } else if (*topic == "problem") {
      write_out(wrapped(problem_help(), help_columns()));
    } else if (*topic == "environment") {
      write_out(wrapped(environment_help(), help_columns()));
    } else if (verb != verbs.end()) {
      write_out((*verb)->help(program.get_name()));
    } else {
      std::vector<std::string> topics = {"problem", "environment"};
      for (const Command* other : verbs) topics.push_back(other->get_name());
      const std::string_view meant = nearest_word(
          *topic, std::vector<std::string_view>(topics.begin(), topics.end()));
      refuse(kInvalidArgument,
             "help has no topic \"{}\"{}; it has problem, environment and every verb: see "
             "attnforge --help",
             *topic, meant.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", meant));
    }
    return int{kExitOk};
  };
}

}  // namespace attnforge::cli
