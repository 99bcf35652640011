// features.cpp - which optional parts a problem has (a family that does not list one of them is
// never asked), and the names of tiers.
#include "generator/family.h"

namespace attnforge {
namespace {

struct FeatureName {
  Feature bit;
  std::string_view name;
};
constexpr FeatureName kNames[] = {
    {kFeatureCausal, "causal"},
    {kFeatureWindow, "window"},
    {kFeatureSoftcap, "softcap"},
    {kFeatureLse, "lse"},
    {kFeatureGqa, "gqa"},
    {kFeatureUnequalHeadDims, "unequal_head_dims"},
    {kFeatureUnaligned, "unaligned"},
    {kFeatureMixedDtypes, "mixed_dtypes"},
    {kFeatureRope, "rope"},
    {kFeatureLengths, "lengths"},
};

}  // namespace

std::string_view to_string(Tier tier) {
  switch (tier) {
    case Tier::kProduct:
      return "product";
    case Tier::kLadder:
      return "ladder";
    case Tier::kOracle:
      return "oracle";
  }
  return "unknown";
}

Features required_features(const Problem& p) {
  Features features = 0;
  const auto need = [&](bool present, Feature bit) {
    if (present) features |= bit;
  };
  need(p.causal, kFeatureCausal);
  // Causal with window_right = 0 is only causal; window_right = 0 alone needs a family that looks
  // at windows.
  need(p.window_left >= 0 || (p.window_right >= 0 && !p.causal), kFeatureWindow);
  need(p.softcap != 0.0f, kFeatureSoftcap);
  need(p.lse, kFeatureLse);
  need(p.num_heads_q != p.num_heads_kv, kFeatureGqa);
  need(p.head_dim != p.head_dim_v, kFeatureUnequalHeadDims);
  need(p.alignment_bytes < 16, kFeatureUnaligned);
  need(p.dtype_q != p.dtype_k || p.dtype_q != p.dtype_v || p.dtype_q != p.dtype_o,
       kFeatureMixedDtypes);
  need(p.rope != Rope::kNone, kFeatureRope);
  need(p.lengths != Lengths::kFixed, kFeatureLengths);
  return features;
}

std::vector<std::string_view> feature_names(Features features) {
  std::vector<std::string_view> names;
  for (const FeatureName& row : kNames) {
    if ((features & row.bit) != 0) names.push_back(row.name);
  }
  return names;
}

}  // namespace attnforge
