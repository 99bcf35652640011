#include "cli/options/command_line.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "attnforge/problem_words.h"

namespace attnforge::cli {

struct Option::Implementation {
  explicit Implementation(CLI::Option* option) : option(option) {}
  CLI::Option* option;  // belongs to the CLI::App of its command
};

Option::Option(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
Option::~Option() = default;

Option* Option::type_name(const std::string& name) {
  implementation_->option->type_name(name);
  return this;
}

Option* Option::check(ValueRule rule) {
  implementation_->option->check(CLI::Validator(std::move(rule), ""));
  return this;
}

Option* Option::transform(ValueRule rule) {
  implementation_->option->transform(CLI::Validator(std::move(rule), ""));
  return this;
}

Option* Option::one_of(const std::vector<std::string>& words) {
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  const auto rule = [words, list](std::string& text) {
    return std::ranges::count(words, text) != 0
               ? ""
               : fmt::format("\"{}\" is not one of {}", text, list);
  };
  implementation_->option->check(CLI::Validator(rule, fmt::format("{{{}}}", list)));
  return this;
}

Option* Option::excludes(Option* other) {
  implementation_->option->excludes(other->implementation_->option);
  return this;
}

Option* Option::needs(Option* other) {
  implementation_->option->needs(other->implementation_->option);
  return this;
}

Option* Option::may_repeat() {
  implementation_->option->expected(1)
      ->allow_extra_args(false)  // else it takes the positional word after the value too
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return this;
}

std::size_t Option::count() const { return implementation_->option->count(); }

struct Command::Implementation {
  std::unique_ptr<CLI::App> owned;  // of the program only
  CLI::App* app;
  std::string parent;  // name of the command that a verb belongs to
};

Command::Command(const std::string& help, const std::string& name, const std::string& version)
    : name_(name), implementation_(std::make_unique<Implementation>()) {
  implementation_->owned = std::make_unique<CLI::App>(help, name);
  implementation_->app = implementation_->owned.get();
  implementation_->app->set_version_flag("--version", version);
  require_subcommand();
}

Command::Command(std::unique_ptr<Implementation> implementation, const std::string& name)
    : name_(name), implementation_(std::move(implementation)) {}
Command::~Command() = default;

Command* Command::add_subcommand(const std::string& name, const std::string& help) {
  auto implementation = std::make_unique<Implementation>();
  implementation->app = implementation_->app->add_subcommand(name, help);
  implementation->parent = name_;
  subcommands_.emplace_back(new Command(std::move(implementation), name));
  return subcommands_.back().get();
}

template <class Value>
Option* Command::add_option(const std::string& name, Value& value, const std::string& help) {
  auto* option = implementation_->app->add_option(name, value, help);
  options_.emplace_back(new Option(std::make_unique<Option::Implementation>(option)));
  return options_.back().get();
}
template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, unsigned&, const std::string&);
template Option* Command::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* Command::add_option(const std::string&, std::uint64_t&, const std::string&);

Option* Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  auto* option = implementation_->app->add_flag(name, value, help);
  options_.emplace_back(new Option(std::make_unique<Option::Implementation>(option)));
  return options_.back().get();
}

Option* Command::get_option(const std::string& name) {
  const CLI::Option* wanted = implementation_->app->get_option(name);
  for (const auto& option : options_) {
    if (option->implementation_->option == wanted) return option.get();
  }
  throw CLI::OptionNotFound(name);
}

void Command::footer(const std::string& text) { implementation_->app->footer(text); }

void Command::require_subcommand() { implementation_->app->require_subcommand(1); }

void Command::refuse_empty_values() {
  const auto not_empty = [](std::string& text) {
    return text.empty() ? std::string("the value is empty; leave the option out instead")
                        : std::string();
  };
  for (const auto& option : options_) {
    CLI::Option* one = option->implementation_->option;
    if (one->get_items_expected_max() > 0 && !one->get_positional()) option->check(not_empty);
  }
  for (const auto& verb : subcommands_) verb->refuse_empty_values();
}

namespace {

/// unknown verb "tun"; did you mean "tune"?
std::string unknown(const std::string& kind, std::string_view word,
                    const std::vector<std::string_view>& known) {
  const std::string said = "unknown " + kind + " \"" + std::string(word) + '"';
  const std::string_view meant = nearest_word(word, known);
  return meant.empty() ? said : said + "; did you mean \"" + std::string(meant) + "\"?";
}

}  // namespace

/// About the first option of the words that this command does not have; "" if it has all.
std::string Command::unknown_option(int argc, const char* const* argv) const {
  std::vector<std::string> names;
  for (const CLI::Option* option : implementation_->app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (int i = 0; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    std::string_view word = argv[i];
    word = word.substr(0, word.find('='));
    if (word.starts_with("--") && std::find(known.begin(), known.end(), word) == known.end())
      return unknown("option", word, known);
  }
  return "";
}

/// About the first verb or option of the words that is not known; "" if all are.
std::string Command::unknown_word(int argc, const char* const* argv) const {
  if (argc == 0 || subcommands_.empty() || argv[0][0] == '-') return unknown_option(argc, argv);
  std::vector<std::string_view> verbs;
  for (const auto& verb : subcommands_) {
    if (verb->name() == argv[0]) return verb->unknown_word(argc - 1, argv + 1);
    verbs.push_back(verb->name());
  }
  return unknown("verb", argv[0], verbs);
}

Command::Parsed Command::parse(int argc, const char* const* argv, std::string& error) {
  CLI::App& app = *implementation_->app;
  try {
    app.parse(argc, argv);
    return Parsed::kVerb;
  } catch (const CLI::ParseError& mistake) {
    if (mistake.get_exit_code() == 0) {
      app.exit(mistake);
      return Parsed::kShown;
    }
    error = mistake.what();
    // Errors are told apart by code: the name of one may be that of its verb.
    const int code = mistake.get_exit_code();
    const bool of_words = code == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                          code == static_cast<int>(CLI::ExitCodes::RequiredError);
    if (const std::string word = of_words ? unknown_word(argc - 1, argv + 1) : ""; !word.empty())
      error = word;
    return Parsed::kWrong;
  }
}

bool Command::parsed() const { return implementation_->app->parsed(); }

const Command* Command::parsed_subcommand() const {
  for (const auto& verb : subcommands_) {
    if (verb->parsed()) return verb.get();
  }
  return nullptr;
}

std::string Command::help() const { return implementation_->app->help(implementation_->parent); }

}  // namespace attnforge::cli
