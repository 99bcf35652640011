#include "generator/problem/features.h"

#include "generator/family.h"
#include "generator/text/enum_names.h"

namespace attnforge {

Features required_features(const Problem& problem) {
  Features features = 0;
  for (const FeatureRow& row : kFeatureTable) {
    if (row.in(problem)) features |= row.bit;
  }
  return features;
}

std::vector<std::string_view> feature_names(Features features) {
  std::vector<std::string_view> names;
  for (const FeatureRow& row : kFeatureTable) {
    if ((features & row.bit) != 0) names.push_back(row.name);
  }
  return names;
}

std::string_view to_string(Tier tier) {
  constexpr std::string_view kNames[] = {"product", "ladder", "oracle"};
  return name_in(kNames, tier);
}

}  // namespace attnforge
