// random_choices.h - decisions of any_problem.h by a seed, the same on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace attnforge::test {

/// For tests and programs that print their seed; what shrinks is ArbitraryChoices
/// (arbitrary_problem.h).
class RandomChoices {
 public:
  explicit RandomChoices(std::uint64_t seed) : random_(seed) {}

  // Not a distribution of the standard library, which is another one in each.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    const auto count = static_cast<std::uint64_t>(most - least) + 1;
    return least + static_cast<std::int64_t>(random_() % count);
  }
  bool one_in(int n) { return between(0, n - 1) == n - 1; }
  std::int64_t size(int bits) { return between(0, std::int64_t{1} << between(0, bits)); }
  template <class Value>
  Value among(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(
        between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace attnforge::test
