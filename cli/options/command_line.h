// command_line.h - verbs and their options: CLI11, and what its messages lack.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attnforge::cli {

/// The program or one of its verbs. Variables that options fill must live until parse() has
/// returned.
using Command = CLI::App;
using Option = CLI::Option;

/// Made of a function that returns "" when an option may have the value, else what is wrong with
/// it; for Option::transform it may rewrite the value. Messages begin with the option's name.
using ValueRule = CLI::Validator;
ValueRule one_of(const std::vector<std::string>& words);

/// The option takes one value each time that it is given, all of which are kept.
void may_repeat(Option* option);

/// Every option of this command and of its verbs that takes a value refuses "".
void refuse_empty_values(Command& command);

/// The verb that was given, nullptr if none; also known when parse() found a mistake after it.
Command* parsed_verb(Command& command);

enum class Parsed { kVerb, kShown, kWrong };  // kShown: --help or --version, which was printed
/// kWrong: `error` says why, as one line without the program's name.
Parsed parse(Command& program, int argc, const char* const* argv, std::string& error);

}  // namespace attnforge::cli
