// index_of.h - a number that is not negative, as an index.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attnforge::test {

constexpr std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace attnforge::test
