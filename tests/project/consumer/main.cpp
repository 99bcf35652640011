// main.cpp - a user of the installed package: asks whether a problem can be served on a GPU that is
// not here, and which NVRTC would compile for it, and catches what the library throws.
#include <attnforge/attnforge.h>

#include <cstdio>

int main() {
  const auto problem = attnforge::parse_problem(
      "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal");
  const auto support = attnforge::supported(problem, attnforge::typical_device("sm_90"));
  std::printf("%s: %s\n", to_string(problem).c_str(),
              support.supported ? support.family.c_str() : support.reason.c_str());
  try {
    attnforge::parse_problem("fwd nonsense");
    return 1;
  } catch (const attnforge::Error& error) {
    std::printf("caught: %s\n", error.what());
  }
  for (const attnforge::Check& check : attnforge::doctor(":memory:"))
    if (check.name == "nvrtc") std::printf("%s\n", check.detail.c_str());
  return support.supported ? 0 : 1;
}
