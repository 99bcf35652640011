// score_with_slope.cuh - a score that carries its derivative through the user's text (dual numbers,
// forward mode): the text is compiled with it in place of a float, and is not rewritten.
#pragma once

#include "parts/user_code/code.cuh"

// A namespace of its own: functions of its numbers are found by their argument, and those of floats
// are still CUDA's.
namespace attnforge::slopes {

/// A number of a text, and its derivative with respect to the score. It becomes no float by itself:
/// a derivative that got lost would be one that is silently 0.
struct ScoreWithSlope {
  float value, slope;

  ATTNFORGE_DEVICE ScoreWithSlope(float x, float its_slope) : value(x), slope(its_slope) {}
  /// What does not depend on the score.
  ATTNFORGE_DEVICE ScoreWithSlope(float x) : value(x), slope(0.0f) {}
};

template <class A, class B>
inline constexpr bool kOneIs = kSame<A, ScoreWithSlope> || kSame<B, ScoreWithSlope>;

ATTNFORGE_DEVICE ScoreWithSlope number(ScoreWithSlope x) { return x; }
template <class T>
ATTNFORGE_DEVICE ScoreWithSlope number(T x) {
  return {static_cast<float>(x), 0.0f};
}

// ---- Operators, of two of them or of one and anything that is a float ----

#define ATTNFORGE_OPERATOR(op, slope_of)                                        \
  template <class A, class B>                                                   \
  requires kOneIs<A, B> ATTNFORGE_DEVICE ScoreWithSlope operator op(A x, B y) { \
    const ScoreWithSlope a = number(x), b = number(y);                          \
    return {a.value op b.value, slope_of};                                      \
  }                                                                             \
  template <class B>                                                            \
  ATTNFORGE_DEVICE ScoreWithSlope& operator op##=(ScoreWithSlope& a, B b) {     \
    return a = a op b;                                                          \
  }
ATTNFORGE_OPERATOR(+, a.slope + b.slope)
ATTNFORGE_OPERATOR(-, a.slope - b.slope)
ATTNFORGE_OPERATOR(*, a.slope* b.value + a.value * b.slope)
ATTNFORGE_OPERATOR(/, (a.slope - a.value / b.value * b.slope) / b.value)
#undef ATTNFORGE_OPERATOR

ATTNFORGE_DEVICE ScoreWithSlope operator-(ScoreWithSlope x) { return {-x.value, -x.slope}; }
ATTNFORGE_DEVICE ScoreWithSlope operator+(ScoreWithSlope x) { return x; }

#define ATTNFORGE_COMPARISON(op)                                      \
  template <class A, class B>                                         \
  requires kOneIs<A, B> ATTNFORGE_DEVICE bool operator op(A x, B y) { \
    return number(x).value op number(y).value;                        \
  }
ATTNFORGE_COMPARISON(<)
ATTNFORGE_COMPARISON(<=)
ATTNFORGE_COMPARISON(>)
ATTNFORGE_COMPARISON(>=)
ATTNFORGE_COMPARISON(==)
ATTNFORGE_COMPARISON(!=)
#undef ATTNFORGE_COMPARISON

// ---- Functions that a text may call: by their names of float, and without the f ----

/// x: the number; y: what the function makes of it.
#define ATTNFORGE_FUNCTION(name, of_float, slope_of)              \
  ATTNFORGE_DEVICE ScoreWithSlope name(ScoreWithSlope argument) { \
    const float x = argument.value;                               \
    [[maybe_unused]] const float y = of_float(x);                 \
    return {y, (slope_of)*argument.slope};                        \
  }
#define ATTNFORGE_FUNCTIONS(name, slope_of)     \
  ATTNFORGE_FUNCTION(name, ::name##f, slope_of) \
  ATTNFORGE_FUNCTION(name##f, ::name##f, slope_of)
ATTNFORGE_FUNCTIONS(exp, y)
ATTNFORGE_FUNCTIONS(exp2, y * 0.6931471805599453f)
ATTNFORGE_FUNCTIONS(expm1, y + 1.0f)
ATTNFORGE_FUNCTIONS(log, 1.0f / x)
ATTNFORGE_FUNCTIONS(log2, 1.4426950408889634f / x)
ATTNFORGE_FUNCTIONS(log10, 0.4342944819032518f / x)
ATTNFORGE_FUNCTIONS(log1p, 1.0f / (1.0f + x))
ATTNFORGE_FUNCTIONS(sqrt, 0.5f / y)
ATTNFORGE_FUNCTIONS(rsqrt, -0.5f * y / x)
ATTNFORGE_FUNCTIONS(cbrt, y / (3.0f * x))
ATTNFORGE_FUNCTIONS(sin, ::cosf(x))
ATTNFORGE_FUNCTIONS(cos, -::sinf(x))
ATTNFORGE_FUNCTIONS(tan, 1.0f + y * y)
ATTNFORGE_FUNCTIONS(atan, 1.0f / (1.0f + x * x))
ATTNFORGE_FUNCTIONS(sinh, ::coshf(x))
ATTNFORGE_FUNCTIONS(cosh, ::sinhf(x))
ATTNFORGE_FUNCTIONS(erf, 1.1283791670955126f * ::expf(-x * x))
ATTNFORGE_FUNCTIONS(fabs, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f)
ATTNFORGE_FUNCTION(abs, ::fabsf, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f)
ATTNFORGE_FUNCTION(__expf, ::__expf, y)
ATTNFORGE_FUNCTION(__logf, ::__logf, 1.0f / x)
ATTNFORGE_FUNCTION(__log2f, ::__log2f, 1.4426950408889634f / x)
ATTNFORGE_FUNCTION(__sinf, ::__sinf, ::__cosf(x))
ATTNFORGE_FUNCTION(__cosf, ::__cosf, -::__sinf(x))
// Steps: level wherever they have a derivative.
ATTNFORGE_FUNCTIONS(floor, 0.0f)
ATTNFORGE_FUNCTIONS(ceil, 0.0f)
ATTNFORGE_FUNCTIONS(trunc, 0.0f)
ATTNFORGE_FUNCTIONS(round, 0.0f)
ATTNFORGE_FUNCTIONS(rint, 0.0f)
#undef ATTNFORGE_FUNCTIONS
#undef ATTNFORGE_FUNCTION

#define ATTNFORGE_LARGER_OR_SMALLER(name, op)                            \
  template <class A, class B>                                            \
  requires kOneIs<A, B> ATTNFORGE_DEVICE ScoreWithSlope name(A x, B y) { \
    const ScoreWithSlope a = number(x), b = number(y);                   \
    return a.value op b.value ? a : b;                                   \
  }
ATTNFORGE_LARGER_OR_SMALLER(fmaxf, >=)
ATTNFORGE_LARGER_OR_SMALLER(fmax, >=)
ATTNFORGE_LARGER_OR_SMALLER(max, >=)
ATTNFORGE_LARGER_OR_SMALLER(fminf, <=)
ATTNFORGE_LARGER_OR_SMALLER(fmin, <=)
ATTNFORGE_LARGER_OR_SMALLER(min, <=)
#undef ATTNFORGE_LARGER_OR_SMALLER

template <class A, class B>
requires kOneIs<A, B> ATTNFORGE_DEVICE ScoreWithSlope powf(A x, B y) {
  const ScoreWithSlope a = number(x), b = number(y);
  const float power = ::powf(a.value, b.value);
  float slope = 0.0f;
  if constexpr (kSame<A, ScoreWithSlope>)
    slope += b.value * ::powf(a.value, b.value - 1.0f) * a.slope;
  if constexpr (kSame<B, ScoreWithSlope>) slope += power * ::logf(a.value) * b.slope;
  return {power, slope};
}
template <class A, class B>
requires kOneIs<A, B> ATTNFORGE_DEVICE ScoreWithSlope pow(A x, B y) { return powf(x, y); }
template <class A, class B>
// NOLINTNEXTLINE(bugprone-reserved-identifier): as CUDA has it
requires kOneIs<A, B> ATTNFORGE_DEVICE ScoreWithSlope __fdividef(A x, B y) { return x / y; }
template <class A, class B, class D>
requires(kOneIs<A, B> || kSame<D, ScoreWithSlope>) ATTNFORGE_DEVICE ScoreWithSlope
    fmaf(A x, B y, D z) {
  return number(x) * number(y) + number(z);
}
template <class A, class B, class D>
requires(kOneIs<A, B> || kSame<D, ScoreWithSlope>) ATTNFORGE_DEVICE ScoreWithSlope
    fma(A x, B y, D z) {
  return fmaf(x, y, z);
}

/// What tanhf() is in a text, as Tanh has it for floats.
template <class Tanh>
struct TanhWithSlope {
  ATTNFORGE_DEVICE float operator()(float x) const { return Tanh()(x); }
  ATTNFORGE_DEVICE ScoreWithSlope operator()(ScoreWithSlope x) const {
    const float y = Tanh()(x.value);
    return {y, (1.0f - ::fminf(y * y, 1.0f)) * x.slope};
  }
};

ATTNFORGE_DEVICE ScoreWithSlope value_of_score(ScoreWithSlope x) { return x; }

/// The slope of what a text gives: numbers without the score in them have none.
ATTNFORGE_DEVICE float slope_of(ScoreWithSlope x) { return x.slope; }
template <class T>
ATTNFORGE_DEVICE float slope_of(T) {
  return 0.0f;
}

}  // namespace attnforge::slopes
