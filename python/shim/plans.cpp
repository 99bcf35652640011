#include "plans.h"

#include <algorithm>
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

bool parse(std::span<const int64_t> words, Recipe& recipe) {
  const auto next = [&] {
    const int64_t word = words.empty() ? -1 : words.front();
    if (!words.empty()) words = words.subspan(1);
    return word;
  };
  recipe.workspace_bytes = next();
  for (auto* places : {&recipe.pointers, &recipe.addresses}) {
    for (int64_t count = next(); count > 0; --count) {
      Recipe::Place& place = places->emplace_back();
      place.source = next();
      place.at = next();
      if (place.source < 0 || place.at < 0 ||
          place.at + 8 > static_cast<int64_t>(recipe.bytes.size()))
        return false;
    }
  }
  for (int64_t count = next(); count > 0; --count) {
    Recipe::Pair& pair = recipe.pairs.emplace_back();
    pair.output = next();
    pair.other = next();
    pair.below = next();
    pair.above = next();
  }
  return recipe.workspace_bytes >= 0 && recipe.bytes.size() <= kMostBytes && words.empty();
}

}  // namespace attnforge_torch
