#include "generator/user_code/library_functions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

namespace attnforge {
namespace {

using std::numbers::inv_sqrtpi;
using std::numbers::ln10;
using std::numbers::ln2;

#define ATTNFORGE_ONE(name, of_x, slope_of_x)                                                     \
  {                                                                                               \
#name, 1,                                                                                     \
        [](double x, double) -> double { return of_x; }, [](double x, double,                     \
                                                            int) -> double { return slope_of_x; } \
  }
/// Level wherever it has a derivative. `x` has to be named in what a macro makes.
#define ATTNFORGE_STEP(name)                                                                     \
  {                                                                                              \
#name, 1,                                                                                    \
        [](double x, double) -> double { return std::name(x); }, [](double, double,              \
                                                                    int) -> double { return 0; } \
  }

constexpr LibraryFunction kFunctions[] = {
    ATTNFORGE_ONE(exp, std::exp(x), std::exp(x)),
    ATTNFORGE_ONE(exp2, std::exp2(x), std::exp2(x) * ln2),
    ATTNFORGE_ONE(expm1, std::expm1(x), std::exp(x)),
    ATTNFORGE_ONE(log, std::log(x), 1 / x),
    ATTNFORGE_ONE(log2, std::log2(x), 1 / (x * ln2)),
    ATTNFORGE_ONE(log10, std::log10(x), 1 / (x * ln10)),
    ATTNFORGE_ONE(log1p, std::log1p(x), 1 / (1 + x)),
    ATTNFORGE_ONE(sqrt, std::sqrt(x), 0.5 / std::sqrt(x)),
    ATTNFORGE_ONE(rsqrt, 1 / std::sqrt(x), -0.5 / (x * std::sqrt(x))),
    ATTNFORGE_ONE(cbrt, std::cbrt(x), std::cbrt(x) / (3 * x)),
    ATTNFORGE_ONE(sin, std::sin(x), std::cos(x)),
    ATTNFORGE_ONE(cos, std::cos(x), -std::sin(x)),
    ATTNFORGE_ONE(tan, std::tan(x), 1 + std::tan(x) * std::tan(x)),
    ATTNFORGE_ONE(atan, std::atan(x), 1 / (1 + x * x)),
    ATTNFORGE_ONE(sinh, std::sinh(x), std::cosh(x)),
    ATTNFORGE_ONE(cosh, std::cosh(x), std::sinh(x)),
    ATTNFORGE_ONE(tanh, std::tanh(x), 1 - std::tanh(x) * std::tanh(x)),
    ATTNFORGE_ONE(erf, std::erf(x), 2 * inv_sqrtpi * std::exp(-x * x)),
    ATTNFORGE_STEP(floor),
    ATTNFORGE_STEP(ceil),
    ATTNFORGE_STEP(trunc),
    ATTNFORGE_STEP(round),
    ATTNFORGE_STEP(rint),
    {"pow", 2, [](double x, double y) -> double { return std::pow(x, y); },
     [](double x, double y, int of) -> double {
       return of == 0 ? y * std::pow(x, y - 1) : std::pow(x, y) * std::log(x);
     }},
};
#undef ATTNFORGE_ONE
#undef ATTNFORGE_STEP

}  // namespace

const LibraryFunction* library_function(std::string_view name) {
  const auto named = [](std::string_view wanted) {
    const auto found = std::ranges::find(kFunctions, wanted, &LibraryFunction::name);
    return found == std::end(kFunctions) ? nullptr : found;
  };
  const LibraryFunction* const found = named(name);
  return found == nullptr && name.ends_with('f') ? named(name.substr(0, name.size() - 1)) : found;
}

}  // namespace attnforge
