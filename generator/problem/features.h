// features.h - the optional parts of a problem as bits: the one table of which there are.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"
#include "generator/problem/fields.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/user_code.h"

namespace attnforge {

/// A family that does not list a part that a problem has is never asked about it, so a part
/// invented later cannot be ignored silently by a family written before.
enum Feature : std::uint64_t {
  kFeatureCausal = 1u << 0,
  kFeatureWindow = 1u << 1,
  kFeatureSoftcap = 1u << 2,
  kFeatureLse = 1u << 3,
  kFeatureGqa = 1u << 4,
  kFeatureUnequalHeadDims = 1u << 5,
  kFeatureUnaligned = 1u << 6,
  kFeatureMixedDtypes = 1u << 7,
  kFeatureRope = 1u << 8,
  kFeatureLengths = 1u << 9,
  kFeatureBlockMask = 1u << 10,
  kFeatureScoreCode = 1u << 11,
  kFeatureMaskCode = 1u << 12,
  kFeatureSinks = 1u << 13,
  kFeaturePages = 1u << 14,
  kFeatureDeterministic = 1u << 15,
  kFeatureAccumulate = 1u << 16,
  kFeatureDlse = 1u << 17,
  kFeatureFp32Gradients = 1u << 18,
  kFeatureDargs = 1u << 19,
  kFeatureLowBits = 1u << 20,
  kFeatureWholeDargs = 1u << 21,
};
using Features = std::uint64_t;

/// Features of one score: served by the Score of whichever pieces a kernel has
/// (ladder/of_shape.cuh, where it names them itself) and by their slopes.
inline constexpr Features kFeaturesOfScores = kFeatureSoftcap;
/// Features of the keys that a query's position lets it see: served by Walk and Mask.
inline constexpr Features kFeaturesOfWindows = kFeatureCausal | kFeatureWindow;
/// Served by pieces of the entry and steps before the kernel, for whichever kernel takes both
/// (templates/pieces/README.md).
inline constexpr Features kFeaturesOfPieces = kFeatureLengths | kFeatureScoreCode |
                                              kFeatureMaskCode | kFeatureSinks | kFeaturePages;
/// Features of gradients: served for whichever family has the steps of templates/backward/host.
inline constexpr Features kFeaturesOfGradients = kFeatureAccumulate | kFeatureDlse |
                                                 kFeatureFp32Gradients;
/// Features of gradients for kernels that take the pieces, a Slope and Queries among them; sinks
/// are the steps' alone.
inline constexpr Features kFeaturesOfGradientPieces = kFeatureLengths | kFeatureBlockMask |
                                                      kFeatureScoreCode | kFeatureMaskCode |
                                                      kFeatureSinks;
/// Features for kernels that can gather their keys from lists.
inline constexpr Features kFeaturesOfLists = kFeatureBlockMask;
/// Features of all forward problems, which their oracle serves by itself.
inline constexpr Features kFeaturesOfForward = kFeaturesOfWindows | kFeaturesOfScores |
                                               kFeatureLse | kFeatureGqa | kFeatureUnequalHeadDims |
                                               kFeatureUnaligned | kFeatureMixedDtypes |
                                               kFeatureRope | kFeatureBlockMask | kFeatureLowBits |
                                               kFeaturesOfPieces;

struct FeatureRow {
  Feature bit;
  std::string_view name;
  bool (*in)(const Problem&);
};
inline constexpr FeatureRow kFeatureTable[] = {
    {kFeatureCausal, "causal", [](const Problem& p) { return p.causal; }},
    // Causal and no key after the own position is only causal; the latter alone needs a family that
    // looks at windows.
    {kFeatureWindow, "window",
     [](const Problem& p) {
       const KeyBounds bounds = key_bounds(p);
       return bounds.left || (bounds.right && !p.causal);
     }},
    {kFeatureSoftcap, "softcap", [](const Problem& p) { return p.softcap != 0.0f; }},
    {kFeatureLse, "lse", [](const Problem& p) { return p.lse; }},
    {kFeatureGqa, "gqa", [](const Problem& p) { return p.num_heads_q != p.num_heads_kv; }},
    {kFeatureUnequalHeadDims, "unequal_head_dims",
     [](const Problem& p) { return p.head_dim != p.head_dim_v; }},
    {kFeatureUnaligned, "unaligned", [](const Problem& p) { return p.alignment_bytes < 16; }},
    {kFeatureMixedDtypes, "mixed_dtypes",
     [](const Problem& p) {
       const auto other = [&](DType dtype) { return dtype != p.dtype_q && !is_low_bit(dtype); };
       return other(p.dtype_k) || other(p.dtype_v) || (!is_low_bit(p.dtype_q) && other(p.dtype_o));
     }},
    {kFeatureRope, "rope", [](const Problem& p) { return p.rope != Rope::kNone; }},
    {kFeatureLengths, "lengths", [](const Problem& p) { return p.lengths != Lengths::kFixed; }},
    {kFeatureBlockMask, "block_mask", has_block_mask},
    {kFeatureScoreCode, "score_code", [](const Problem& p) { return !p.score.empty(); }},
    {kFeatureMaskCode, "mask_code", [](const Problem& p) { return !mask_code(p).empty(); }},
    {kFeatureSinks, "sinks", [](const Problem& p) { return p.sinks; }},
    {kFeaturePages, "pages", has_pages},
    {kFeatureDeterministic, "deterministic", [](const Problem& p) { return p.deterministic; }},
    {kFeatureAccumulate, "accumulate", [](const Problem& p) { return p.accumulate; }},
    {kFeatureDlse, "dlse", [](const Problem& p) { return p.dlse; }},
    {kFeatureFp32Gradients, "fp32_gradients", has_wider_gradients},
    {kFeatureDargs, "dargs", [](const Problem& p) { return !p.dargs.empty(); }},
    {kFeatureLowBits, "low_bits", has_low_bit_kv},
    {kFeatureWholeDargs, "whole_dargs", writes_dargs},
};

Features required_features(const Problem& problem);
/// Names of the set bits, e.g. {"causal", "lse"}.
std::vector<std::string_view> feature_names(Features features);

}  // namespace attnforge
