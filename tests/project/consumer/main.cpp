// main.cpp - a user of the installed package: asks whether a problem can be served on a GPU that is
// not here, and which NVRTC would compile for it.
#include <attnforge/inspect.h>
#include <attnforge/plan.h>

#include <cstdio>

int main() {
  const auto problem = attnforge::parse_problem(
      "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal");
  const auto support = attnforge::supported(problem, attnforge::typical_device("sm90"));
  std::printf("%s: %s\n", to_string(problem).c_str(),
              support.supported ? support.family.c_str() : support.reason.c_str());
  for (const attnforge::Check& check : attnforge::doctor(":memory:"))
    if (check.name == "nvrtc") std::printf("%s\n", check.detail.c_str());
  return support.supported ? 0 : 1;
}
