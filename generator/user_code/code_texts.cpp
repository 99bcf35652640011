#include "attnforge/code_texts.h"

#include <fmt/format.h>

namespace attnforge {

CodeTexts alibi() {
  return {.score = "s + slope[head] * (k - q)", .args = "float* slope[num_heads_q]"};
}

CodeTexts relative_bias(std::int64_t reach) {
  return {.score = fmt::format("s + relative_bias[head * {0} + min(max(k - q, -{1}), {1}) + {1}]",
                               2 * reach + 1, reach),
          .args = fmt::format("float* relative_bias[num_heads_q * {}]", 2 * reach + 1)};
}

CodeTexts tanh_cap(float cap) { return {.score = fmt::format("{0:#}f * tanhf(s / {0:#}f)", cap)}; }

CodeTexts documents() {
  return {.mask = "document_q[batch * seqlen_q + q] == document_kv[batch * seqlen_kv + k]",
          .args = "int* document_q[batch * seqlen_q], int* document_kv[batch * seqlen_kv]"};
}

CodeTexts prefix_lm() {
  return {.mask = "k <= q + seqlen_kv - seqlen_q || k < prefix[batch]",
          .args = "int* prefix[batch]"};
}

CodeTexts dilated_window(std::int64_t reach, std::int64_t step) {
  return {.mask = fmt::format("abs(k - q) <= {} && (k - q) % {} == 0", reach, step)};
}

void add_code(Problem& problem, const CodeTexts& texts) {
  Problem sum = problem;
  if (sum.mask.empty() || texts.mask.empty())
    sum.mask += texts.mask;
  else
    sum.mask = fmt::format("({}) && ({})", sum.mask, texts.mask);
  if (sum.score.empty() || texts.score.empty())
    sum.score += texts.score;
  else
    sum.score = fmt::format("[&](float s) {{ return {}; }}({})", texts.score, sum.score);
  if (!sum.args.empty() && !texts.args.empty()) sum.args += ", ";
  sum.args += texts.args;
  validate(sum);
  problem = sum;
}

}  // namespace attnforge
