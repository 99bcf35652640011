#define XXH_INLINE_ALL  // a hash of a known size is a few instructions in place
#include "generator/problem/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attnforge/printable.h"
#include "generator/problem/field_table.h"
#include "generator/text/enum_names.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

using fields::kFields;
using fields::kLayouts;
using fields::kOps;

// Unrolled: plans are looked up by the hash, and a plan for a new length checks its problem.

/// visit(index) of every field, in order.
template <class Visit>
void for_each_field(const Visit& visit) {
  [&]<std::size_t... kIndexes>(std::index_sequence<kIndexes...>) {
    (visit(std::integral_constant<std::size_t, kIndexes>()), ...);
  }
  (std::make_index_sequence<std::size(kFields)>());
}

constexpr std::size_t kHashWords = 8;  // hashed in half the time of fourteen
using HashWords = std::array<std::uint64_t, kHashWords>;

template <std::size_t kIndex>
void mix(const Problem& p, HashWords& words) {
  constexpr FieldValue kValue = kFields[kIndex].value;
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  std::uint64_t& word = words[kIndex % kHashWords];
  if constexpr (kValue.get != nullptr) {
    word = word * kOdd + static_cast<std::uint64_t>(kValue.get(p));
  } else if constexpr (kValue.number != nullptr) {
    // -0 equals 0, so it must hash like it.
    word = word * kOdd + std::bit_cast<std::uint32_t>(p.*kValue.number + 0.0f);
  }
}

/// Mixes a text into the hash together with its field: an equal text elsewhere is another problem.
template <std::size_t kIndex>
void mix_text(const Problem& p, std::uint64_t& hash) {
  constexpr FieldValue kValue = kFields[kIndex].value;
  if constexpr (kValue.text != nullptr) {
    const std::string& text = p.*kValue.text;
    if (!text.empty()) hash = XXH3_64bits_withSeed(text.data(), text.size(), hash + kIndex);
  }
}

constexpr const ProblemField& named(std::string_view name) {
  std::size_t i = 0;
  while (kFields[i].word.name != name) ++i;
  return kFields[i];
}

[[noreturn]] void refuse_in_op(const ProblemField& field, const Problem& p) {
  std::vector<std::string_view> ops;
  for (std::size_t i = 0; i < std::size(kOps); ++i) {
    if ((field.ops & only(static_cast<Op>(i))) != 0) ops.push_back(kOps[i]);
  }
  reject_problem("{} is of {}{}; leave it out of {}", word_text(field, p), fmt::join(ops, " and "),
                 ops.size() == 1 ? " alone" : "", to_string(p.op));
}
[[noreturn]] void refuse_in_backward(const ProblemField& field) {
  reject_problem("{} does not go with bwd; {}", field.name(), field.not_backward);
}
[[noreturn]] void refuse_alone(const ProblemField& field, const Problem& p) {
  reject_problem("{} needs {}", word_text(field, p), field.why_needed);
}
[[noreturn]] void refuse_together(const ProblemField& field, const ProblemField& other,
                                  const Problem& p) {
  reject_problem("{} does not go with {}; {}", word_text(field, p), word_text(other, p),
                 field.instead);
}
template <class Value>
[[noreturn]] void refuse_value(const ProblemField& field, Value value) {
  reject_problem("{}={} must be {}", label(field), value, field.word.allowed);
}

/// Whether it goes with the op and with other words.
template <std::size_t kIndex>
void check_word(const Problem& p) {
  constexpr const ProblemField& kField = kFields[kIndex];
  if (!kField.value.is_set(p)) return;
  // Sizes that an op does not have follow from those that it has.
  if (kField.value.is_set != fields::always && (kField.ops & only(p.op)) == 0)
    refuse_in_op(kField, p);
  if (!kField.not_backward.empty() && is_backward(p)) refuse_in_backward(kField);
  if (!is_attention(p)) return;  // their parts say what goes together
  if constexpr (!kField.needs.empty()) {
    if (!named(kField.needs).value.is_set(p)) refuse_alone(kField, p);
  }
  if constexpr (!kField.excludes.empty()) {
    constexpr const ProblemField& kOther = named(kField.excludes);
    if (kOther.value.is_set(p)) refuse_together(kField, kOther, p);
  }
}
template <std::size_t kIndex>
void check_value(const Problem& p) {
  constexpr const ProblemField& kField = kFields[kIndex];
  constexpr FieldValue kValue = kField.value;
  if constexpr (kValue.ok != nullptr) {
    if (!kValue.ok(kValue.get(p))) refuse_value(kField, kValue.get(p));
  }
  if constexpr (kValue.kind == FieldKind::kChoice) {
    if (static_cast<std::uint64_t>(kValue.get(p)) >= kValue.choices.size())
      refuse_value(kField, kValue.get(p));
  }
  if constexpr (kValue.number != nullptr) {
    if (!kValue.number_ok(p.*kValue.number)) refuse_value(kField, p.*kValue.number);
  }
}

}  // namespace

void check_exclusions(const Problem& p) {
  if (static_cast<std::size_t>(p.op) >= std::size(kOps))
    reject_problem("op={} must be {}", static_cast<int>(p.op), words_of_ops());
  for_each_field([&](auto index) { check_word<index>(p); });
  if (p.fp32_gradients && p.alignment_bytes < bytes_of(DType::kFp32, 1))
    reject_problem("gradients=fp32 needs alignment={} to be 4 or more", p.alignment_bytes);
}

std::span<const ProblemField> problem_fields() { return kFields; }

std::string_view to_string(Op op) { return name_in(kOps, op); }
std::string_view to_string(Layout layout) { return name_in(kLayouts, layout); }
std::string_view to_string(Lengths lengths) { return name_in(fields::kLengths, lengths); }
std::string_view to_string(KvScale scale) { return name_in(fields::kKvScales, scale); }
std::string_view to_string(Rope rope) { return name_in(fields::kRopes, rope); }

std::optional<Op> op_named(std::string_view name) { return named_in<Op>(kOps, name); }

std::string_view words_of_ops() { return "fwd, bwd, merge or append"; }

const ProblemField* find_field(std::string_view name) {
  const auto* found = std::ranges::find(kFields, name, &ProblemField::name);
  return found == std::end(kFields) ? nullptr : found;
}

std::span<const ProblemWord> problem_words() {
  static const std::vector<ProblemWord> kWords = [] {
    std::vector<ProblemWord> words;
    for (const ProblemField& field : kFields) words.push_back(field.word);
    return words;
  }();
  return kWords;
}

ProblemWordValue value_of_word(const Problem& p, std::string_view name) {
  const ProblemField* field = find_field(name);
  if (field != nullptr) {
    const FieldValue& value = field->value;
    if (field->meant != nullptr) return field->meant(p);
    if (!value.choices.empty()) return value.choices[value.get(p)];
    if (value.get != nullptr) return value.get(p);
    if (value.number != nullptr) return static_cast<double>(p.*value.number);
    if (value.text != nullptr) return std::string_view(p.*value.text);
  }
  throw_error(ErrorCode::kInvalidArgument, "\"{}\" is no word with a value of its own",
              printable(name));
}

std::string label(const ProblemField& field) {
  const bool is_dtype = field.value.choices.data() == fields::kDTypes.data();
  return fmt::format("{}{}", is_dtype ? "dtype " : "", field.name());
}

void check_integer(const ProblemField& field, std::int64_t value) {
  if (!field.value.ok(value)) refuse_value(field, value);
}

void check_fields(const Problem& p) {
  for_each_field([&](auto index) { check_value<index>(p); });
}

void check_relations(const Problem& p) {
  for_each_field([&](auto index) {
    if constexpr (kFields[index].check != nullptr) kFields[index].check(p);
  });
}

void round_fields(Problem& p) {
  for_each_field([&](auto index) {
    if constexpr (kFields[index].round != nullptr) kFields[index].round(p);
  });
}

std::uint64_t hash_of_fields(const Problem& p) {
  HashWords words{static_cast<std::uint64_t>(p.op)};
  for_each_field([&](auto index) { mix<index>(p, words); });
  std::uint64_t hash = XXH3_64bits(words.data(), sizeof(words));
  for_each_field([&](auto index) { mix_text<index>(p, hash); });
  return hash;
}

}  // namespace attnforge
