// problem_text.cpp - any text as a problem: refused in words, or a valid problem whose canonical
// text is read back as the same one.
#include "attnforge/problem.h"

#include <cmath>

#include "attnforge/plan.h"
#include "generator/problem/bucket.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string text = text_of(data, size);
  Problem problem;
  if (!accepts([&] { problem = parse_problem(text); })) return 0;
  require(accepts([&] { validate(problem); }), "a parsed problem is not valid: " + text);
  const std::string canonical = to_string(problem);
  require(parse_problem(canonical) == problem, "another problem is read back from " + canonical);
  require(to_string(parse_problem(canonical)) == canonical, "two texts for " + canonical);

  const Problem rounded = bucket(problem);
  require(accepts([&] { validate(rounded); }), "the bucket is not valid of " + canonical);
  require(bucket(rounded) == rounded, "the bucket is not its own bucket of " + canonical);
  require(ProblemHash()(problem) == ProblemHash()(parse_problem(canonical)), "two hashes");
  const std::int64_t pairs = visible_pairs(problem);
  require(pairs >= 0 && pairs <= problem.seqlen_q * problem.seqlen_kv,
          "visible pairs of " + canonical + " are " + std::to_string(pairs));
  require(std::isfinite(flops(problem)) && flops(problem) >= 0, "flops of " + canonical);
  require(std::isfinite(minimum_bytes(problem)) && minimum_bytes(problem) >= 0,
          "minimum_bytes of " + canonical);
  require(effective_softmax_scale(problem) > 0, "softmax_scale of " + canonical);
  require(contiguous_tensors(problem).q.stride_row > 0, "strides of " + canonical);
  return 1;
}

std::vector<std::string> corpus() {
  return {"fwd bf16 batch=1 num_heads_q=32 num_heads_kv=8 seqlen=4096 head_dim=128 causal lse",
          "fwd fp16 seqlen=4096:8192 head_dim=192:128 num_heads=32:8 layout=bhsd softcap=30",
          "fwd q=fp16 k=bf16 v=bf16 o=fp32 window_left=127 window_right=0 causal",
          "fwd fp32 tf32 softmax_scale=0.125 alignment=4 layout=packed_qkv batch=0",
          "fwd bf16 rope=half rope_dim=64 head_dim=128 seqlen_q=1 seqlen_kv=77",
          "bwd bf16 args=\"float* a, int n, fp16* b\" score=\"s + a[k] * b[n]\" dargs=\"b, a\"",
          "fwd",
          "fwd bf16 batch=1048576",
          "fwd fp16 num_heads=65535:65535 seqlen=134217728"};
}

std::vector<std::string> words() {
  return {"fwd",
          "bf16",
          "fp16",
          "fp32",
          "q=",
          "k=fp16",
          "v=bf16",
          "o=fp32",
          "batch=",
          "num_heads=",
          "num_heads_q=",
          "num_heads_kv=",
          "seqlen=",
          "seqlen_q=",
          "seqlen_kv=",
          "head_dim=",
          "head_dim_v=",
          "layout=bhsd",
          "layout=packed_qkv",
          "layout=",
          "causal",
          "lse",
          "tf32",
          "window_left=",
          "window_right=",
          "softcap=",
          "softmax_scale=",
          "rope=half",
          "rope=interleaved",
          "rope=",
          "rope_dim=",
          "alignment=",
          "alignment=2",
          ":",
          "=",
          "128",
          "\x1b[2J",
          "\xff",
          "bwd",
          "dargs=a",
          "dargs=\"b,a\"",
          "score=s*a[0]",
          "args=\"float* a\"",
          "1073741824",
          "1e-20",
          "1e20"};
}

}  // namespace attnforge::fuzz
