// problems.cpp - the lists.
#include "tests/templates/problems.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"

namespace attnforge::test {

namespace {

std::vector<Problem> parsed(std::initializer_list<const char*> texts) {
  std::vector<Problem> list;
  for (const char* text : texts) list.push_back(parse_problem(text));
  return list;
}

int archs_that_serve(const Family& family, const Problem& problem) {
  return static_cast<int>(std::count_if(archs().begin(), archs().end(), [&](const Arch& arch) {
    return rejection(family, problem, arch).empty();
  }));
}

}  // namespace

std::span<const Problem> template_problems() {
  static const std::vector<Problem> problems = parsed({
      "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal",
      "fwd fp16 batch=4 num_heads=16 seqlen=1024 head_dim=64 lse",
      "fwd bf16 batch=2 num_heads=8 seqlen=512 head_dim=40 causal alignment=4",
      "fwd fp16 batch=1 num_heads=12 seqlen=2048 head_dim=72 window_left=256 window_right=0",
      "fwd bf16 batch=1 num_heads=16 seqlen=2048 head_dim=192:128 causal lse",
      "fwd bf16 batch=1 num_heads=8:1 seqlen=4096 head_dim=256 causal softcap=50",
      "fwd fp16 batch=8 num_heads=32:4 seqlen=1:4096 head_dim=128",
      "fwd bf16 batch=1 num_heads=4 seqlen=300:700 head_dim=64:256 window_left=64 "
      "window_right=64",
      "fwd fp16 batch=1 num_heads=24 seqlen=4608 head_dim=8 softcap=30 lse",
      "fwd bf16 batch=1 num_heads=8:2 seqlen=2048 head_dim=512 causal lse",
      "fwd fp16 batch=2 num_heads=6 seqlen=1000 head_dim=328:72 alignment=8",
      "fwd fp32 batch=1 num_heads=8 seqlen=1024 head_dim=96 causal lse",
      "fwd fp16 batch=1 num_heads=8:2 seqlen=129:65 head_dim=112 causal alignment=2",
      "fwd q=bf16 k=fp16 v=fp32 o=fp32 batch=1 num_heads=2 seqlen=64:256 head_dim=32:16 "
      "alignment=4",
      "fwd bf16 batch=1 num_heads=32:8 seqlen=2048 head_dim=128 causal rope=half",
      "fwd fp16 batch=2 num_heads=8 seqlen=1024 head_dim=72 rope=interleaved rope_dim=40",
      "fwd fp32 batch=1 num_heads=8:2 seqlen=1024 head_dim=64 causal rope=half",
  });
  return problems;
}

std::span<const Problem> hopper_problems() {
  static const std::vector<Problem> problems = parsed({
      "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 lse",
      "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal lse",
      "fwd fp16 batch=4 num_heads=32 seqlen=4096 head_dim=64 causal lse",
      "fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=256 lse",
      "fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=256 causal lse",
      "fwd bf16 batch=32 num_heads=16 seqlen=512 head_dim=128 causal lse",
      "fwd bf16 batch=4 num_heads=51 seqlen=4096 head_dim=40 lse",
      "fwd fp16 batch=4 num_heads=42 seqlen=4096 head_dim=48 causal lse",
      "fwd bf16 batch=4 num_heads=28 seqlen=4096 head_dim=72 lse",
      "fwd bf16 batch=4 num_heads=25 seqlen=4096 head_dim=80 causal lse",
      "fwd bf16 batch=4 num_heads=21 seqlen=4096 head_dim=96 lse",
      "fwd bf16 batch=4 num_heads=18 seqlen=4096 head_dim=112 causal lse",
      "fwd bf16 batch=4 num_heads=12 seqlen=4096 head_dim=160 lse",
      "fwd bf16 batch=4 num_heads=10 seqlen=4096 head_dim=192 causal lse",
      "fwd bf16 batch=1 num_heads=128 seqlen=4096 head_dim=192:128 causal lse",
      "fwd bf16 batch=1 num_heads=64:8 seqlen=8192 head_dim=128 causal lse",
      "fwd bf16 batch=8 num_heads=32:8 seqlen=4:4096 head_dim=128 causal",
      "fwd bf16 batch=2 num_heads=64:8 seqlen=4096 head_dim=64 causal window_left=127",
      "fwd fp16 batch=1 num_heads=4 seqlen=1000:3000 head_dim=88:248 softcap=20",
      "fwd bf16 batch=1 num_heads=4 seqlen=77 head_dim=16:24 window_left=9 window_right=9 lse",
      "fwd fp16 batch=4 num_heads=16 seqlen=4096 head_dim=64 rope=half",
      "fwd bf16 batch=1 num_heads=16 seqlen=4096 head_dim=256 causal rope=half rope_dim=64",
      "fwd bf16 batch=1 num_heads=32:8 seqlen=8192 head_dim=128 lse rope=interleaved",
  });
  return problems;
}

std::span<const Problem> fp32_problems() {
  static const std::vector<Problem> problems = parsed({
      "fwd fp32 batch=4 num_heads=16 seqlen=2048 head_dim=64",
      "fwd fp32 batch=4 num_heads=16 seqlen=2048 head_dim=128 causal lse",
      "fwd fp32 batch=4 num_heads=16 seqlen=2048 head_dim=64 tf32",
      "fwd fp32 batch=4 num_heads=16 seqlen=2048 head_dim=128 causal tf32",
      "fwd fp32 batch=1 num_heads=1 seqlen=1536 head_dim=64",
      "fwd fp32 batch=2 num_heads=8:2 seqlen=700 head_dim=48 window_left=100 alignment=4",
      "fwd fp32 batch=4 num_heads=8 seqlen=1024 head_dim=72 softcap=30 lse",
      "fwd fp32 batch=4 num_heads=8 seqlen=1024 head_dim=160",
      "fwd fp32 batch=2 num_heads=8 seqlen=2048 head_dim=256 lse",
      "fwd fp32 batch=2 num_heads=8 seqlen=1024 head_dim=512 causal",
      "fwd fp32 batch=2 num_heads=8 seqlen=1024 head_dim=320 tf32 lse",
      "fwd fp32 batch=8 num_heads=32:4 seqlen=1:4096 head_dim=128",
      "fwd fp32 batch=4 num_heads=12 seqlen=1024 head_dim=64:256 window_left=64 "
      "window_right=64",
  });
  return problems;
}

std::span<const Problem> backward_problems() {
  static const std::vector<Problem> problems = parsed({
      "bwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128",
      "bwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal",
      "bwd fp16 batch=2 num_heads=32 seqlen=1024 head_dim=64 causal deterministic",
      "bwd bf16 batch=1 num_heads=8 seqlen=2048 head_dim=256",
      "bwd bf16 batch=1 num_heads=64:8 seqlen=2048 head_dim=128 causal",
      "bwd fp16 batch=2 num_heads=6 seqlen=1000:700 head_dim=72 causal gradients=fp32",
      "bwd bf16 batch=1 num_heads=8:2 seqlen=300 head_dim=96 window_left=100 accumulate",
      "bwd bf16 batch=1 num_heads=4 seqlen=129:65 head_dim=192:128 causal dlse",
      "bwd fp16 batch=1 num_heads=4 seqlen=512 head_dim=80 softcap=30",
      "bwd bf16 batch=1 num_heads=4 seqlen=77 head_dim=40 window_left=9 window_right=9",
      "bwd fp16 batch=1 num_heads=4:1 seqlen=600 head_dim=112 alignment=8 accumulate "
      "gradients=fp32",
      "bwd fp32 batch=1 num_heads=4 seqlen=512 head_dim=64 causal",
      "bwd q=bf16 k=fp16 v=fp32 o=fp32 batch=1 num_heads=2 seqlen=64:256 head_dim=32:16 "
      "alignment=4",
      "bwd bf16 batch=3 num_heads=4 seqlen=500 head_dim=64 lengths=packed",
  });
  return problems;
}

std::span<const Problem> merge_problems() {
  static const std::vector<Problem> problems = parsed({
      "merge fp32 o=bf16 batch=2 num_heads=4 seqlen=500 head_dim=128 lse parts=2",
      "merge fp32 num_heads=3 seqlen=7 head_dim=64 lse parts=3",
      "merge bf16 batch=2 num_heads=2 seqlen=3 head_dim=72 parts=5 alignment=2",
      "merge fp16 batch=3 num_heads=8 head_dim=512 lse parts=9",
      "merge fp16 o=fp32 num_heads=2 seqlen=33 head_dim=8 parts=17 alignment=4",
      "merge fp32 o=fp16 num_heads=5 seqlen=2 head_dim=200 lse parts=32",
      "merge bf16 batch=64 num_heads=32 head_dim=256 lse parts=1",
      "merge bf16 o=fp16 batch=2 num_heads=5 seqlen=3 head_dim=40 parts=4 alignment=8",
  });
  return problems;
}

std::span<const Problem> append_problems() {
  static const std::vector<Problem> problems = parsed({
      "append bf16 batch=64 num_heads=32:8 seqlen=1:4096 head_dim=128 page_size=64 rope=half "
      "queries "
      "lengths_after",
      "append bf16 batch=64 num_heads=8 seqlen=1:4096 head_dim=128 page_size=16",
      "append fp16 batch=4 num_heads=8:2 seqlen=5:100 head_dim=128 rope=interleaved rope_dim=64 "
      "queries "
      "alignment=2",
      "append fp16 batch=9 num_heads=2 seqlen=40:300 head_dim=72:40 lengths=packed tokens=90 "
      "rope=half "
      "alignment=8 lengths_after",
      "append fp32 batch=2 num_heads=3 seqlen=2:64 head_dim=512:256 rope=half alignment=4",
      "append bf16 batch=3 num_heads=5:1 seqlen=9:64 head_dim=192:128 rope=interleaved rope_dim=24 "
      "queries alignment=4",
      "append fp32 batch=7 num_heads=1 seqlen=17:40 head_dim=64 alignment=8 lengths_after",
      "append bf16 num_heads=8 seqlen=3000:3100 head_dim=128 page_size=128 lengths=packed "
      "lengths_after",
      "append bf16 k=int8 v=int8 kv_scale=token batch=64 num_heads=32:8 seqlen=1:4096 head_dim=128 "
      "page_size=64 rope=half queries lengths_after",
      "append bf16 k=int4 v=int4 kv_scale=group64 batch=64 num_heads=8 seqlen=1:4096 head_dim=128 "
      "page_size=16",
      "append bf16 k=int4 v=int4 kv_scale=token kv_zero batch=64 num_heads=8 seqlen=1:4096 "
      "head_dim=128 "
      "page_size=16",
      "append fp16 k=e4m3 v=e5m2 kv_scale=head batch=4 num_heads=8:2 seqlen=5:100 head_dim=72:40 "
      "rope=interleaved rope_dim=24 queries alignment=2",
      "append fp16 k=int4 v=fp16 kv_scale=group32 batch=9 num_heads=2 seqlen=40:300 "
      "head_dim=512:256 lengths=packed tokens=90 alignment=4 lengths_after",
      "append bf16 k=e4m3 v=e4m3 kv_scale=group32 batch=3 num_heads=4 seqlen=2:64 head_dim=128:64 "
      "rope=half",
      "append bf16 k=bf16 v=e5m2 batch=3 num_heads=4 seqlen=300:640 head_dim=40:72",
  });
  return problems;
}

std::span<const Problem> problems_of(const Family& family) {
  if (family.op == Op::kAppend) return append_problems();
  if (family.op == Op::kMerge) return merge_problems();
  if (family.op == Op::kBackward) return backward_problems();
  const bool only_fp32 = archs_that_serve(family, template_problems()[0]) == 0 &&
                         archs_that_serve(family, fp32_problems()[0]) > 0;
  return only_fp32 ? fp32_problems() : template_problems();
}

std::vector<Problem> problems_on(const Family& family, const Arch& arch) {
  std::vector<Problem> served;
  const auto add = [&](std::span<const Problem> problems) {
    for (const Problem& problem : problems) {
      if (rejection(family, problem, arch).empty()) served.push_back(problem);
    }
  };
  add(problems_of(family));
  if (archs_that_serve(family, hopper_problems()[0]) == 1) add(hopper_problems());
  return served;
}

}  // namespace attnforge::test
