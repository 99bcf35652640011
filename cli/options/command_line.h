// command_line.h - verbs and their options. CLI11, which does the work, is compiled in
// command_line.cpp alone: its header costs more than most files.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace attnforge::cli {

/// "" when an option may have the value, else what is wrong with it. May rewrite the value.
using ValueRule = std::function<std::string(std::string& value)>;

/// What a Command's option is and may be. Each function returns the option itself. Owned by its
/// Command.
class Option {
 public:
  /// What stands for the value in the help, e.g. "N".
  Option* type_name(const std::string& name);
  /// Refuses a value; messages begin with the option's name.
  Option* check(ValueRule rule);
  /// Checks values by a rule; the value that the rule leaves is what is read.
  Option* transform(ValueRule rule);
  Option* one_of(const std::vector<std::string>& words);
  Option* excludes(Option* other);
  Option* needs(Option* other);
  /// Takes one value each time that it is given, all of which are kept.
  Option* may_repeat();
  /// How often it was given.
  std::size_t count() const;
  ~Option();

 private:
  friend class Command;
  struct Implementation;
  explicit Option(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// The program or one of its verbs. Verbs belong to the program; variables that options fill must
/// live until parse() has returned. Not thread-safe.
class Command {
 public:
  enum class Parsed { kVerb, kShown, kWrong };  // kShown: --help or --version, which was printed

  /// A program that needs a verb.
  Command(const std::string& help, const std::string& name, const std::string& version);
  ~Command();

  Command* add_subcommand(const std::string& name, const std::string& help);
  /// Value: std::string, std::vector<std::string>, double, and the whole numbers.
  template <class Value>
  Option* add_option(const std::string& name, Value& value, const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);
  /// One that was added. Throws std::exception when there is none.
  Option* get_option(const std::string& name);
  void footer(const std::string& text);
  /// A verb of this one must be given.
  void require_subcommand();
  /// Every option of this command and of its verbs that takes a value refuses "".
  void refuse_empty_values();

  /// kWrong: `error` says why, as one line without the program's name.
  Parsed parse(int argc, const char* const* argv, std::string& error);
  const std::string& name() const { return name_; }
  bool parsed() const;
  /// The verb that was given, nullptr if none; also known when parse() found a mistake after it.
  const Command* parsed_subcommand() const;
  /// The text of --help.
  std::string help() const;
  const std::vector<std::unique_ptr<Command>>& subcommands() const { return subcommands_; }

 private:
  struct Implementation;
  Command(std::unique_ptr<Implementation> implementation, const std::string& name);
  std::string unknown_word(int argc, const char* const* argv) const;
  std::string unknown_option(int argc, const char* const* argv) const;

  std::string name_;
  std::unique_ptr<Implementation> implementation_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<Command>> subcommands_;
};

}  // namespace attnforge::cli
