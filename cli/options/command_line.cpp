#include "cli/options/command_line.h"

#include <algorithm>

#include "attnforge/problem_words.h"
#include "cli/options/problems.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

constexpr Policy kPolicies[] = {Policy::kEstimate, Policy::kFirstRun, Policy::kCachedOnly};

/// `text` for a message, which a value of a megabyte must not fill.
std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 40;
  if (text.size() <= kShown) return "\"" + text + "\"";
  return fmt::format("\"{}...\" ({} characters)", text.substr(0, kShown), text.size());
}

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

ValueRule whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](std::string& text) {
    const auto number = number_in<std::uint64_t>(text);
    if (!number || *number < least || *number > most)
      return fmt::format("{} must be a whole number from {} to {}", shortened(text), least, most);
    text = std::to_string(*number);
    return std::string();
  };
  return ValueRule(check, "");
}

ValueRule seconds() {
  static constexpr double kMostSeconds = 1e9;
  const auto check = [](const std::string& text) -> std::string {
    const auto number = number_in<double>(text);
    if (number && *number >= 0 && *number <= kMostSeconds) return "";
    return fmt::format("{} must be a number of seconds from 0 to {:.0f}", shortened(text),
                       kMostSeconds);
  };
  return ValueRule(check, "");
}

ValueRule names() {
  const auto check = [](const std::string& text) {
    return names_of(text).empty() ? fmt::format("{} names nothing", shortened(text)) : "";
  };
  return ValueRule(check, "");
}

void add_cache_option(Command& verb, std::string& path) {
  add_value(verb, "--cache PATH", path,
            "Database file; default $ATTNFORGE_CACHE, else ~/.cache/attnforge/attnforge.db");
}

void add_plan_options(Command& verb, PlanOptions& options) {
  std::vector<std::string> names;
  for (const Policy known : kPolicies) names.emplace_back(to_string(known));
  verb.add_option_function<std::string>(
          "--policy", [&](const std::string& name) { options.policy = policy_named(name); },
          "Without a winner in the database: take the model's choice, tune (the default), or "
          "refuse")
      ->check(one_of(names));
  add_value(verb, "--time-limit SECONDS", options.time_limit_s,
            "Of the tuning by --policy first_run; default 8")
      ->transform(seconds());
  add_value(verb, "--family NAME", options.family, "Only this kernel family (see attnforge list)");
  add_value(verb, "--config TEXT", options.config,
            "Exactly this config, as tune --full and inspect --full print it");
}

Policy policy_named(const std::string& name) {
  for (const Policy known : kPolicies)
    if (name == to_string(known)) return known;
  refuse(kInvalidArgument, "unknown policy \"{}\"", name);
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
