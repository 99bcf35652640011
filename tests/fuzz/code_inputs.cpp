#include "tests/fuzz/code_inputs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>

namespace attnforge::fuzz {

std::string input_of(const CodeTexts& texts) {
  return texts.score + kBetweenTexts + texts.mask + kBetweenTexts + texts.args;
}

CodeTexts texts_of(std::string_view input) {
  std::array<std::string, 3> texts;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::size_t end = i + 1 == texts.size() ? input.npos : input.find(kBetweenTexts);
    texts[i] = input.substr(0, end);
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
  }
  return {.score = texts[0], .mask = texts[1], .args = texts[2]};
}

std::vector<std::string> right_code_inputs() {
  std::vector<std::string> inputs;
  for (const CodeTexts& texts : {alibi(), relative_bias(4), tanh_cap(20), tanh_cap(0.5f),
                                 documents(), prefix_lm(), dilated_window(60, 3)})
    inputs.push_back(input_of(texts));
  const CodeTexts others[] = {
      {.score = "s"},
      {.mask = "k <= q"},
      {.score = "s * 2", .mask = "k <= q && q - k < 40"},
      {.score = "k % 2 == 0 ? s : s - 1.5f"},
      {.score = "s\n  + 0.25f * float(head)\n  - 1.0f / (1 + abs(q - k))"},
      {.score = "min(max(s, -3.0f), 3.0f)", .mask = "(k ^ q) % 3 != 1"},
      {.score = "s * factor",
       .mask = "q - k < window",
       .args = "float factor = 1.5, int window = 40"},
      {.score = "s + bias[batch * num + head]", .args = "fp16* bias[4 * batch], int num = 2"},
      {.score = "tanhf(s) * expf(-0.01f * fabsf(s))", .mask = "true"},
      {.mask = "seen[k] && q >= k - seqlen_kv + seqlen_q", .args = "bool* seen[seqlen_kv]"},
      {.score = "s + float(seqlen_kv - k) / float(seqlen_q + q + 1)"},
      {.mask = "q % 2 == 0 || k / 16 == q / 16"},
  };
  for (const CodeTexts& texts : others) inputs.push_back(input_of(texts));
  return inputs;
}

std::vector<std::string> wrong_code_inputs() {
  const CodeTexts wrong[] = {
      {.score =
           "s); } } int escaped = 0; namespace attnforge { struct Other { int f() { return (0"},
      {.score = "s)); asm(\"exit;\"); ((s"},
      {.score = "s\n#include \"/etc/passwd\"\n"},
      {.score = "s\n#line 1 \"other\"\n+ 1"},
      {.score = "s // and on", .mask = "k <= q /* and on"},
      {.score = "s + 1 \\"},
      {.score = "s ?\?/\n+ 1", .mask = "k ?\?( 1"},
      {.score = "s %: include <stdio.h>", .mask = "k <% q"},
      {.score = "R\"(s)\"", .mask = "'k' < 'q'"},
      {.score = "__asm__(\"trap;\")", .mask = "_Pragma(\"once\")"},
      {.score = "s + \xc3\xa9", .mask = "k \xe2\x89\xa4 q"},
      {.score = std::string("s + \0 1", 7), .mask = "\r\n\tk"},
      {.score = "s +", .mask = "k <="},
      {.score = "s; return s", .mask = "k, q"},
      {.score = "nothing(s)", .mask = "slope"},
      {.score = "throw 1", .args = "float* slope[0 * batch], int slope"},
      {.score = "[&] { return s; }()", .mask = "[&] { for (;;) {} return true; }()"},
      {.score = "s", .args = "float"},
      {.score = "s", .args = "double* x, int y[3], , bool b = 1e99"},
  };
  std::vector<std::string> inputs;
  for (const CodeTexts& texts : wrong) inputs.push_back(input_of(texts));
  inputs.push_back(std::string(2000, '(') + "s" + std::string(2000, ')'));
  return inputs;
}

namespace {

using Kind = std::vector<std::string_view>;

/// Tokens that may stand for one another.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = {
      {"s", "s * 0.5f", "k", "q", "head", "batch", "(k - q)", "seqlen_kv", "float(k)"},
      {"0", "1", "2", "3", "7", "16", "0.5f", "1.5f", "0.125f", "-2", "-1.0f", "40"},
      {"+", "-", "*"},
      {"<=", "<", ">", ">=", "==", "!="},
      {"&&", "||"},
      {"fabsf", "tanhf", "expf", "abs", "float", "int", "sqrtf"},
      {"min", "max"}};
  return kKinds;
}

struct Piece {
  std::size_t begin, length;
};

/// Names, numbers and operators that are outside of square brackets.
std::vector<Piece> pieces_of(const std::string& text) {
  std::vector<Piece> pieces;
  const auto in_word = [&](std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) != 0 ||
                               text[i] == '_' || text[i] == '.');
  };
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (in_word(at)) {
      while (in_word(end)) ++end;
    } else if (end < text.size() && text.find_first_of("=&|", end) == end) {
      ++end;
    }
    depth += text[at] == '[' ? 1 : text[at] == ']' ? -1 : 0;
    if (depth == 0 && text[at] != ' ' && text[at] != '\n') pieces.push_back({at, end - at});
    at = end;
  }
  return pieces;
}

void change_piece(std::string& text, Random& random) {
  const std::vector<Piece> pieces = pieces_of(text);
  if (pieces.empty()) return;
  const Piece piece = pieces[random.below(pieces.size())];
  const std::string_view old = std::string_view(text).substr(piece.begin, piece.length);
  const bool is_number = std::isdigit(static_cast<unsigned char>(old.front())) != 0;
  for (const Kind& kind : kinds()) {
    const bool is_numbers = kind.front() == "0";
    if (is_numbers ? !is_number : std::find(kind.begin(), kind.end(), old) == kind.end()) continue;
    text.replace(piece.begin, piece.length, kind[random.below(kind.size())]);
    return;
  }
}

void wrap(std::string& text, bool is_score, Random& random) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kScores = {
      {{"fabsf(", ")"},
       {"min(", ", 2.0f)"},
       {"2 * tanhf(", ")"},
       {"-(", ") * 0.25f"},
       {"k > q ? s : (", ")"},
       {"s + 0.5f * (", ")"}}};
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kMasks = {
      {{"!(", ")"}, {"(", ") && q != 5"}, {"(", ") || k < 4"}, {"k % 5 != 2 || (", ")"}}};
  const auto& [before, after] = is_score ? kScores[random.below(kScores.size())]
                                         : kMasks[random.below(kMasks.size())];
  text = std::string(before) + text + std::string(after);
}

}  // namespace

CodeTexts other_code(CodeTexts texts, Random& random) {
  const std::size_t changes = 1 + random.below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const bool is_score = texts.mask.empty() || (!texts.score.empty() && random.below(2) == 0);
    std::string& text = is_score ? texts.score : texts.mask;
    if (random.below(4) == 0)
      wrap(text, is_score, random);
    else
      change_piece(text, random);
  }
  return texts;
}

std::vector<std::string> code_words(bool hostile) {
  std::vector<std::string> words = {
      "s",      "k",    "q",     "head",   "batch", "seqlen_q", "seqlen_kv", "slope", "(s)",
      "+",      "-",    "*",     "/",      "%",     "<",        "<=",        ">",     "==",
      "!=",     "&&",   "||",    "!",      "?",     ":",        "(",         ")",     "-1",
      "0.5f",   "2",    "1e-3f", "fabsf(", "min(",  "max(",     "tanhf(",    "expf(", "abs(",
      "float(", "int(", "k - q", "s > 0",  "16",    "true",     "false",     ",",     "\n",
      "<<",     ">>",   "&",     "|",      "^",     "~",        "-s",        "s * s", "1.0f"};
  if (!hostile) return words;
  for (const char* word : {"{",
                           "}",
                           ";",
                           "#",
                           "#include",
                           "#line 1",
                           "//",
                           "/*",
                           "*/",
                           "\\",
                           "\\\n",
                           "\"",
                           "'",
                           "R\"(",
                           ")\"",
                           "?\?/",
                           "<%",
                           "%>",
                           "<:",
                           "%:",
                           "asm",
                           "__asm__",
                           "_Pragma",
                           "__asm",
                           "operator",
                           "template",
                           "return",
                           "while(1)",
                           "sizeof",
                           "static_cast<float>(",
                           "this",
                           "\xc3\xa9",
                           "\xff",
                           "\x1b[2J",
                           "\r",
                           "\t",
                           "[&]",
                           "[",
                           "]",
                           "float* ",
                           "int ",
                           "fp16* ",
                           "bf16* x[batch]",
                           "= 1",
                           "bool* ",
                           "new",
                           "delete",
                           "attnforge_code",
                           "Words",
                           "threadIdx.x",
                           "__syncthreads()",
                           "::",
                           "\x1e"})
    words.push_back(word);
  words.push_back(std::string(1, '\0'));
  return words;
}

}  // namespace attnforge::fuzz
