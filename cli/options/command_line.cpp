#include "cli/options/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "attnforge/problem_words.h"

namespace attnforge::cli {
namespace {

std::vector<Command*> verbs_of(Command& command) {
  return command.get_subcommands([](const Command*) { return true; });
}

/// unknown verb "tun"; did you mean "tune"?
std::string unknown(const std::string& kind, std::string_view word,
                    const std::vector<std::string>& known) {
  const std::string said = fmt::format("unknown {} \"{}\"", kind, word);
  const std::string_view meant = nearest_word(
      word, std::vector<std::string_view>(known.begin(), known.end()));
  return meant.empty() ? said : fmt::format("{}; did you mean \"{}\"?", said, meant);
}

/// About the first option of the words that this command does not have; "" if it has all.
std::string unknown_option(const Command& command, int argc, const char* const* argv) {
  std::vector<std::string> known;
  for (const Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (int i = 0; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    std::string_view word = argv[i];
    word = word.substr(0, word.find('='));
    if (word.starts_with("--") && std::ranges::count(known, word) == 0)
      return unknown("option", word, known);
  }
  return "";
}

/// About the first verb or option of the words that is not known; "" if all are.
std::string unknown_word(Command& command, int argc, const char* const* argv) {
  const std::vector<Command*> verbs = verbs_of(command);
  if (argc == 0 || verbs.empty() || argv[0][0] == '-') return unknown_option(command, argc, argv);
  std::vector<std::string> names;
  for (Command* verb : verbs) {
    if (verb->get_name() == argv[0]) return unknown_word(*verb, argc - 1, argv + 1);
    names.push_back(verb->get_name());
  }
  return unknown("verb", argv[0], names);
}

}  // namespace

ValueRule one_of(const std::vector<std::string>& words) {
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  const auto rule = [words, list](const std::string& text) {
    return std::ranges::count(words, text) != 0
               ? ""
               : fmt::format("\"{}\" is not one of {}", text, list);
  };
  return ValueRule(rule, fmt::format("{{{}}}", list));
}

void may_repeat(Option* option) {
  option->expected(1)
      ->allow_extra_args(false)  // else it takes the positional word after the value too
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void refuse_empty_values(Command& command) {
  const auto not_empty = [](const std::string& text) -> std::string {
    return text.empty() ? "the value is empty; leave the option out instead" : "";
  };
  for (Option* option : command.get_options()) {
    if (option->get_items_expected_max() > 0 && !option->get_positional())
      option->check(ValueRule(not_empty, ""));
  }
  for (Command* verb : verbs_of(command)) refuse_empty_values(*verb);
}

Command* parsed_verb(Command& command) {
  for (Command* verb : verbs_of(command)) {
    if (verb->parsed()) return verb;
  }
  return nullptr;
}

Parsed parse(Command& program, int argc, const char* const* argv, std::string& error) {
  try {
    program.parse(argc, argv);
    return Parsed::kVerb;
  } catch (const CLI::ParseError& mistake) {
    if (mistake.get_exit_code() == 0) {
      program.exit(mistake);
      return Parsed::kShown;
    }
    error = mistake.what();
    // Errors are told apart by code: the name of one may be that of its verb.
    const int code = mistake.get_exit_code();
    const bool of_words = code == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                          code == static_cast<int>(CLI::ExitCodes::RequiredError);
    if (const std::string word = of_words ? unknown_word(program, argc - 1, argv + 1) : "";
        !word.empty())
      error = word;
    return Parsed::kWrong;
  }
}

}  // namespace attnforge::cli
