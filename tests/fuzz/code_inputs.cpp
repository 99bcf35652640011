#include "tests/fuzz/code_inputs.h"

#include <array>

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
