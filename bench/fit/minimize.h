// minimize.h - the least value of a function of a few numbers, without its slopes: Nelder and Mead,
// "A simplex method for function minimization", 1965.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace attnforge {

using Vector = std::vector<double>;

/// From `start`, with a simplex of edges `step`, at most `evaluations` calls. Never worse than
/// `start`. Deterministic.
inline Vector minimize(const std::function<double(const Vector&)>& of, const Vector& start,
                       double step, int evaluations) {
  using Corner = std::pair<double, Vector>;
  std::vector<Corner> simplex = {{of(start), start}};
  for (std::size_t i = 0; i < start.size(); ++i) {
    Vector corner = start;
    corner[i] += step;
    simplex.emplace_back(of(corner), corner);
  }
  const std::size_t n = start.size();
  for (int done = static_cast<int>(simplex.size()); done < evaluations;) {
    std::ranges::stable_sort(simplex, {}, &Corner::first);
    Corner& worst = simplex.back();
    Vector middle(n);
    for (std::size_t corner = 0; corner < n; ++corner)
      for (std::size_t i = 0; i < n; ++i)
        middle[i] += simplex[corner].second[i] / static_cast<double>(n);
    /// The worst corner, moved through the middle of the others.
    const auto moved = [&](double by) {
      Vector at(n);
      for (std::size_t i = 0; i < n; ++i) at[i] = middle[i] + by * (worst.second[i] - middle[i]);
      ++done;
      return Corner(of(at), at);
    };
    Corner next = moved(-1);
    if (next.first < simplex.front().first) {
      Corner further = moved(-2);
      worst = further.first < next.first ? further : next;
    } else if (next.first < simplex[n - 1].first) {
      worst = next;
    } else if (Corner nearer = moved(next.first < worst.first ? -0.5 : 0.5);
               nearer.first < std::min(next.first, worst.first)) {
      worst = nearer;
    } else {
      for (std::size_t corner = 1; corner <= n; ++corner) {
        for (std::size_t i = 0; i < n; ++i)
          simplex[corner].second[i] = (simplex[corner].second[i] + simplex[0].second[i]) / 2;
        simplex[corner].first = of(simplex[corner].second);
        ++done;
      }
    }
  }
  return std::ranges::min_element(simplex, {}, &Corner::first)->second;
}

}  // namespace attnforge
