// cxx20.h - refuses a compile that is not of C++20, and says what libattnforge.so shows. Every
// public C++ header includes it first.
#pragma once

#if __cplusplus < 202002L
#error "attnforge needs C++20: -std=c++20, in CMake target_compile_features(t PRIVATE cxx_std_20)"
#include "attnforge/no_more_errors_without_cxx20.h"  // does not exist: ends the compile here
#endif

// Before each function and class of the library; all others are hidden. c.h has the same lines.
#if defined(__GNUC__)
#define ATTNFORGE_API __attribute__((visibility("default")))
#else
#define ATTNFORGE_API
#endif
