#include "plans.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace attnforge_torch {

void Key::add(std::string_view text) {
  add(static_cast<int64_t>(text.size()));
  for (size_t i = 0; i < text.size(); i += 8) {
    int64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
    add(word);
  }
}

void Plans::put(const Key& key, Recipe recipe, uint64_t epoch) {
  constexpr size_t kMost = 4096;  // as attnforge.plan_cache
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || epoch != epoch_) return;
  if (recipes_.size() >= kMost) recipes_.clear();
  recipes_.insert_or_assign(std::string(key.bytes()),
                            std::make_shared<const Recipe>(std::move(recipe)));
}

Plans::Known Plans::find(const Key& key) const {
  const std::shared_lock lock(mutex_);
  const auto found = recipes_.find(key.bytes());
  return found == recipes_.end() ? Known{} : Known{found->second, epoch_};
}

void Plans::forget() {
  const std::lock_guard gate(gate_);
  const std::unique_lock lock(mutex_);
  ++epoch_;
  recipes_.clear();
}

int64_t rounded(int64_t rows) {
  if (rows <= 1) return rows;
  if (rows <= 16) return 16;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  if (rows <= 1024) return std::max<int64_t>(64, rows == below ? rows : 2 * below);
  const int64_t step = below / 4;
  return (rows + step - 1) / step * step;
}

bool parse(std::span<const int64_t> words, Recipe& recipe) {
  const auto next = [&] {
    const int64_t word = words.empty() ? -1 : words.front();
    if (!words.empty()) words = words.subspan(1);
    return word;
  };
  const auto has_word = [&](int64_t at) {
    return at >= 0 && at + 8 <= static_cast<int64_t>(recipe.bytes.size());
  };
  recipe.workspace_bytes = next();
  recipe.context = next();
  recipe.rest = next();
  recipe.num_rests = next();
  for (auto* places : {&recipe.pointers, &recipe.addresses}) {
    for (int64_t count = next(); count > 0; --count) {
      Recipe::Place& place = places->emplace_back();
      place.source = next();
      place.at = next();
      place.more = next();
      if (place.source < 0 || !has_word(place.at)) return false;
    }
  }
  for (int64_t count = next(); count > 0; --count) {
    Recipe::Rows& rows = recipe.rows.emplace_back();
    rows.of = next();
    rows.at = next();
    rows.most = next();
    if (rows.of < kQueries || rows.of > kKeys || !has_word(rows.at)) return false;
  }
  for (int64_t count = next(); count > 0; --count) {
    Recipe::Pair& pair = recipe.pairs.emplace_back();
    pair.output = next();
    pair.other = next();
    pair.below = next();
    pair.above = next();
  }
  for (int64_t count = next(); count > 0; --count) recipe.zeros.push_back(next());
  constexpr int64_t kRestBytes = 40;  // of an attnforge_rest
  if (recipe.num_rests > 0 &&
      !(has_word(recipe.rest) && has_word(recipe.rest + kRestBytes * recipe.num_rests - 8)))
    return false;
  return recipe.workspace_bytes >= 0 && recipe.bytes.size() <= kMostBytes && words.empty();
}

}  // namespace attnforge_torch
