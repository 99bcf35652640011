#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cstring>

namespace attnforge::fuzz {
namespace {

constexpr const char* kNumbers[] = {"0",
                                    "-0",
                                    "1",
                                    "-1",
                                    "+1",
                                    "2",
                                    "3",
                                    "8",
                                    "255",
                                    "256",
                                    "1024",
                                    "65535",
                                    "65536",
                                    "2147483647",
                                    "2147483648",
                                    "-2147483648",
                                    "4294967296",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "-9223372036854775808",
                                    "18446744073709551616",
                                    "100000000000000000000000000000000000000000",
                                    "1e308",
                                    "1e-300",
                                    "1e999",
                                    "1e-46",
                                    "nan",
                                    "inf",
                                    "-inf",
                                    "0x10",
                                    "1.5",
                                    "1,000",
                                    ""};

struct Range {
  std::size_t begin, length;
};

Range any_range(const std::string& text, Random& random) {
  const std::size_t begin = random.below(text.size() + 1);
  return {begin, random.below(std::min<std::size_t>(text.size() - begin, 64) + 1)};
}

/// A word between blanks, or an empty one.
Range any_word(const std::string& text, Random& random) {
  const std::size_t at = random.below(text.size());
  const std::size_t before = text.find_last_of(" \n", at);
  const std::size_t begin = before == text.npos ? 0 : std::min(before + 1, text.size());
  const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
  return {begin, end - begin};
}

/// The digits around a place, with their sign.
Range any_number(const std::string& text, Random& random) {
  const auto is_digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  std::size_t begin = random.below(text.size());
  while (begin < text.size() && !is_digit(begin)) ++begin;
  while (begin > 0 && begin < text.size() && is_digit(begin - 1)) --begin;
  std::size_t end = begin;
  while (end < text.size() && is_digit(end)) ++end;
  if (begin > 0 && begin < end && text[begin - 1] == '-') --begin;
  return {begin, end - begin};
}

void change(std::string& input, const std::string& other, const std::vector<std::string>& words,
            Random& random) {
  const auto byte = [&] { return static_cast<char>(random.next()); };
  const auto known = [&] {
    return words.empty() ? std::string() : words[random.below(words.size())];
  };
  const auto replace = [&](Range range, const std::string& text) {
    input.replace(range.begin, range.length, text);
  };
  switch (random.below(14)) {
    case 0:
      if (!input.empty())
        input[random.below(input.size())] ^= static_cast<char>(1 << random.below(8));
      break;
    case 1:
      if (!input.empty()) input[random.below(input.size())] = byte();
      break;
    case 2:
      input.insert(random.below(input.size() + 1), 1, byte());
      break;
    case 3:
      replace(any_range(input, random), "");
      break;
    case 4: {
      const Range range = any_range(input, random);
      input.insert(range.begin, input.substr(range.begin, range.length));
      break;
    }
    case 5:
      input.resize(random.below(input.size() + 1));
      break;
    case 6:
    case 7:
      replace(any_word(input, random), known());
      break;
    case 8:
      input.insert(any_word(input, random).begin, known() + " ");
      break;
    case 9:
      input.insert(random.below(input.size() + 1), known());
      break;
    case 10:
    case 11:
      replace(any_number(input, random), kNumbers[random.below(std::size(kNumbers))]);
      break;
    case 12: {
      const Range from = any_range(other, random);
      replace(any_range(input, random), other.substr(from.begin, from.length));
      break;
    }
    case 13: {  // words change places
      const Range first = any_word(input, random), second = any_word(input, random);
      const std::string text = input.substr(second.begin, second.length);
      if (first.begin + first.length <= second.begin) {
        replace(second, input.substr(first.begin, first.length));
        replace(first, text);
      }
      break;
    }
  }
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string mutated(std::string input, const std::string& other,
                    const std::vector<std::string>& words, Random& random) {
  const std::size_t changes = 1 + random.below(1 + random.below(8));
  for (std::size_t i = 0; i < changes; ++i) change(input, other, words, random);
  if (random.below(200) == 0 && !input.empty()) {  // a long one
    const Range word = any_word(input, random);
    const std::string text = input.substr(word.begin, word.length) + " ";
    while (input.size() < kMostInputBytes) input.insert(word.begin, text);
  }
  input.resize(std::min(input.size(), kMostInputBytes));
  return input;
}

}  // namespace attnforge::fuzz
