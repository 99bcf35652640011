// empty_grids_test.cpp - no step of a launch has an empty grid, which a driver refuses, whatever of
// a problem is empty: sequences, queries, keys, tokens, and what a mask's text leaves to ask.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

class Problems {
 public:
  /// A valid one in which half of the sizes are 0.
  Problem next() {
    for (;;) {
      Problem p = any();
      try {
        validate(p);
        return p;
      } catch (const Error&) {  // draw again
      }
    }
  }

 private:
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  bool one_in(unsigned n) { return random_() % n == 0; }

  Problem any() {
    Problem p;
    const DType dtype = one_of({DType::kBf16, DType::kFp16, DType::kBf16, DType::kFp32});
    p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_o = dtype;
    p.batch = one_of<std::int64_t>({1, 3, 2, 0});
    p.num_heads_kv = one_of<std::int64_t>({1, 2});
    p.num_heads_q = p.num_heads_kv * one_of<std::int64_t>({1, 4});
    p.seqlen_q = one_of<std::int64_t>({0, 1, 200, 4});
    p.seqlen_kv = one_of<std::int64_t>({0, 0, 1, 200, 4000});
    p.head_dim = p.head_dim_v = one_of({64, 128, 256, 40});
    p.causal = one_in(3);
    p.sinks = one_in(6);
    if (one_in(4)) p.rope = Rope::kHalf;
    p.lengths = one_of({Lengths::kFixed, Lengths::kPacked, Lengths::kUsed});
    if (p.lengths == Lengths::kPacked && one_in(2)) {
      p.tokens_q = one_of<std::int64_t>({0, 1, p.seqlen_q});
      p.tokens_kv = one_of<std::int64_t>({0, 1, p.seqlen_kv});
    }
    if (one_in(4)) p.page_size = one_of({16, 128});
    if (one_in(4)) p.mask_block_q = p.mask_block_kv = one_of({64, 128});
    p.mask_bits = p.mask_block_q != 0 && one_in(2);
    if (one_in(2)) {
      p.mask = one_of<const char*>({"document[q] == document[k]", "k % 3 != q % 2", "k <= q"});
      if (p.mask.starts_with("document")) p.args = "int* document[seqlen_q + seqlen_kv]";
    }
    if (one_in(4)) p.score = "s * 2 + head";
    if (one_in(3)) {
      p.op = Op::kBackward;
      p.deterministic = one_in(2);
      p.accumulate = one_in(3);
    } else {
      p.lse = one_in(2);
    }
    return p;
  }

  std::mt19937 random_{41};
};

std::string text_of(const Dim3& d) {
  return std::to_string(d.x) + "x" + std::to_string(d.y) + "x" + std::to_string(d.z);
}

TEST(Launches, HaveNoStepOfAnEmptyGrid) {
  constexpr int kProblems = 400;
  constexpr std::size_t kMostConfigs = 6;  // of a family, the best and others
  Problems problems;
  int launches = 0, degenerate = 0;
  for (int i = 0; i < kProblems; ++i) {
    const Problem problem = problems.next();
    const DeviceFacts device = typical_device(i % 3 == 0 ? "80" : "90a");
    for (const Family* const family : registry()) {
      const std::vector<Candidate> all = candidates(*family, problem, device);
      const std::size_t step = std::max<std::size_t>(1, all.size() / kMostConfigs);
      for (std::size_t c = 0; c < all.size(); c += step) {
        const Launch launch = family->launch(all[c].config, problem, device);
        ++launches;
        degenerate += problem.batch == 0 || problem.seqlen_q == 0 || problem.seqlen_kv == 0;
        for (const LaunchStep& each : launch.steps) {
          EXPECT_TRUE(each.grid.x > 0 && each.grid.y > 0 && each.grid.z > 0)
              << each.kernel << " has a grid of " << text_of(each.grid) << ", "
              << to_string(all[c].config) << ", " << to_string(problem);
        }
      }
    }
  }
  EXPECT_GT(launches, kProblems);
  EXPECT_GT(degenerate, launches / 4);
}

}  // namespace
}  // namespace attnforge
