// completion.cpp - attnforge completion: scripts by which bash, zsh and fish complete verbs,
// options and the words of a problem, made of the program's own table of options.
#include <algorithm>
#include <iterator>

#include "attnforge/problem_words.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

constexpr const char* kCompletionFooter = R"(Examples:
  attnforge completion bash > ~/.local/share/bash-completion/completions/attnforge
  attnforge completion zsh > ~/.zfunc/_attnforge          (a folder of $fpath)
  attnforge completion fish > ~/.config/fish/completions/attnforge.fish)";

struct Candidate {
  std::string word, help;
  bool takes_value = false;
};

/// What may follow the words of `path`, such as "" or "cache ls".
struct Place {
  std::string path;
  std::vector<Candidate> candidates{};
};

std::string first_sentence(std::string text) {
  text.resize(std::min({text.find('\n'), text.find("; "), text.size()}));
  return text;
}

/// Ends in "=" where a word takes a value: "seqlen=".
std::vector<Candidate> words_of_problems() {
  std::vector<Candidate> words;
  for (const char* operation : {"fwd", "bwd", "merge", "append"})
    words.push_back({operation, "begins a problem"});
  for (const ProblemWord& word : problem_words()) {
    const std::size_t equals = std::min(word.form.find('='), word.form.size() - 1);
    words.push_back(
        {std::string(word.form.substr(0, equals + 1)), first_sentence(std::string(word.meaning))});
  }
  return words;
}

void add_places(Command& command, const std::string& path, std::vector<Place>& places) {
  Place place{path};
  bool takes_problems = false;
  const std::vector<Command*> verbs = command.get_subcommands([](Command*) { return true; });
  for (const Command* verb : verbs)
    place.candidates.push_back({verb->get_name(), first_sentence(verb->get_description())});
  for (const Option* option : command.get_options()) {
    takes_problems = takes_problems ||
                     (option->get_positional() && option->get_name() == "problem");
    for (const std::string& name : option->get_lnames())
      place.candidates.push_back({"--" + name, first_sentence(option->get_description()),
                                  option->get_items_expected_max() > 0});
  }
  if (path == "help") place.candidates = {{"problem", "every word"}, {"environment", "variables"}};
  if (path == "completion") place.candidates = {{"bash", ""}, {"zsh", ""}, {"fish", ""}};
  if (takes_problems) std::ranges::move(words_of_problems(), std::back_inserter(place.candidates));
  places.push_back(std::move(place));
  for (Command* verb : verbs)
    add_places(*verb, path.empty() ? verb->get_name() : path + " " + verb->get_name(), places);
}

/// In single quotes of a shell, where nothing but a quote means anything.
std::string in_quotes(std::string_view text, std::string_view quote = "'\\''") {
  std::string all = "'";
  for (const char c : text)
    if (c == '\'')
      all += quote;
    else
      all += c;
  return all + "'";
}

std::string listed_of(const Place& place) {
  std::string words;
  for (const Candidate& each : place.candidates) words += (words.empty() ? "" : " ") + each.word;
  return words;
}

/// Of bash and of zsh: `path` becomes the verbs among the words before the cursor.
std::string path_loop(const std::vector<Place>& places, std::string_view words) {
  std::string known;
  for (const Place& place : places)
    if (!place.path.empty()) known += (known.empty() ? "" : "|") + in_quotes(place.path);
  return fmt::format(R"(  for word in {}; do
    case "${{path:+$path }}$word" in
      {}) path="${{path:+$path }}$word" ;;
    esac
  done
  case $path in
)",
                     words, known);
}

std::string bash(const std::vector<Place>& places) {
  std::string text =
      "# Completion of attnforge for bash, written by attnforge completion bash.\n"
      "_attnforge() {\n  local path= word list= cur=${COMP_WORDS[COMP_CWORD]}\n" +
      path_loop(places, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"");
  for (const Place& place : places)
    text += fmt::format("    {}) list={} ;;\n", in_quotes(place.path), in_quotes(listed_of(place)));
  return text + R"(  esac
  COMPREPLY=($(compgen -W "$list" -- "$cur"))
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
  return 0
}
complete -o default -F _attnforge attnforge
)";
}

std::string zsh(const std::vector<Place>& places) {
  std::string text =
      "#compdef attnforge\n# Completion for zsh, written by attnforge completion zsh.\n"
      "_attnforge() {\n  local path= word\n  local -a list open\n" +
      path_loop(places, "${words[2,CURRENT-1]}");
  for (const Place& place : places) {
    std::string closed, open;
    for (const Candidate& each : place.candidates) {
      std::string& to = each.word.ends_with('=') ? open : closed;
      to += (to.empty() ? "" : " ") + each.word;
    }
    text += fmt::format("    {}) list=({}) open=({}) ;;\n", in_quotes(place.path), closed, open);
  }
  return text + R"(  esac
  compadd -a list
  (( ${#open} )) && compadd -S '' -a open
  _files
}
_attnforge "$@"
)";
}

std::string fish(const std::vector<Place>& places) {
  std::string text =
      "# Completion of attnforge for fish, written by attnforge completion fish.\n"
      "function __attnforge_at\n"
      "  set -l path\n"
      "  for word in (commandline -opc)[2..]\n"
      "    set -l next (string join ' ' $path $word)\n"
      "    if contains -- $next";
  for (const Place& place : places)
    if (!place.path.empty()) text += " " + in_quotes(place.path, "\\'");
  text +=
      "\n      set path $path $word\n    end\n  end\n"
      "  test (string join ' ' $path) = \"$argv[1]\"\nend\n";
  for (const Place& place : places) {
    for (const Candidate& each : place.candidates) {
      const bool option = each.word.starts_with("--");
      text += fmt::format("complete -c attnforge -n {} {} {}{}",
                          in_quotes(fmt::format("__attnforge_at \"{}\"", place.path), "\\'"),
                          option ? "-l" : "-a", option ? each.word.substr(2) : each.word,
                          each.takes_value ? " -r" : "");
      text += each.help.empty() ? "\n" : fmt::format(" -d {}\n", in_quotes(each.help, "\\'"));
    }
  }
  return text;
}

}  // namespace

Verb add_completion(Command& program) {
  auto shell = std::make_shared<std::string>();
  Command& verb = *program.add_subcommand("completion", "Print the completion script of a shell");
  add_value(verb, "shell SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  verb.footer(kCompletionFooter);
  return [&program, shell] {
    std::vector<Place> places;
    add_places(program, "", places);
    const auto text = *shell == "bash"  ? bash(places)
                      : *shell == "zsh" ? zsh(places)
                                        : fish(places);
    fmt::print("{}", text);
    return int{kExitOk};
  };
}

}  // namespace attnforge::cli
