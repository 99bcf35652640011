// slow_path_test.cpp - which problems are told that they are served badly, and what they are told.
#include "plan/choice/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace attnforge {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string told(const std::string& words, const char* arch = "sm_90") {
  return slow_path(parse_problem("fwd num_heads=32:8 seqlen=4096 head_dim=128 causal " + words),
                   typical_device(arch));
}

TEST(SlowPath, OrdinaryProblemsAreToldNothing) {
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90"}) {
    for (const char* words : {"bf16", "fp16", "fp32", "bf16 window_left=1000 softcap=30 lse"})
      EXPECT_EQ(told(words, arch), "") << arch << ' ' << words;
  }
}

TEST(SlowPath, QueriesOfAnotherDtypeAreToldToBeConverted) {
  for (const char* arch : {"sm_80", "sm_86", "sm_90"}) {
    EXPECT_THAT(told("bf16 q=fp32 o=fp32", arch),
                AllOf(HasSubstr("fwd_naive serves"), HasSubstr("times slower"),
                      HasSubstr("make q, k, v and o all bf16 (they are fp32, bf16, bf16 and fp32)"),
                      Not(HasSubstr("align"))))
        << arch;
  }
}

TEST(SlowPath, AnOutputOfAnotherDtypeIsToldAlone) {
  for (const char* words : {"bf16 o=fp32", "bf16 o=fp32 k=int8 v=int8 kv_scale=token"})
    EXPECT_THAT(told(words), HasSubstr("would: make o bf16 as q is (it is fp32)")) << words;
}

TEST(SlowPath, TensorsOffTheirAlignmentAreToldToBeAligned) {
  EXPECT_THAT(told("bf16 alignment=2"),
              AllOf(HasSubstr("than fwd_wgmma_sm90a would"),
                    HasSubstr("align pointers and strides of q, k, v and o to 16 bytes (now 2)"),
                    Not(HasSubstr("make q"))));
}

TEST(SlowPath, BothAreSaidWhereBothAreNeeded) {
  EXPECT_THAT(told("bf16 q=fp32 alignment=4"),
              AllOf(HasSubstr("make q, k, v and o all bf16"), HasSubstr(", and align pointers")));
}

TEST(SlowPath, WhatNoProductServesIsToldSoHoweverSmall) {
  EXPECT_THAT(slow_path(parse_problem("fwd bf16 alignment=2 seqlen=8 head_dim=64"),
                        typical_device("sm_90")),
              AllOf(HasSubstr("fwd_flash_vec serves"), HasSubstr("which no product family does")));
  // On a GPU without what products are made of there is nothing to change.
  DeviceFacts bare = typical_device("sm_90");
  bare.arch.cp_async = bare.arch.wgmma = bare.arch.tma = false;
  EXPECT_THAT(slow_path(parse_problem("fwd fp32 seqlen=8 head_dim=64"), bare),
              AllOf(HasSubstr("fwd_flash_vec serves"),
                    HasSubstr("which no product family does, fwd_wgmma_sm90a: needs wgmma"),
                    HasSubstr("; fwd_regtile_f32: needs cp.async")));
}

TEST(SlowPath, WhoForcesAFamilyIsToldNothing) {
  Overrides forced;
  forced.family = "fwd_wmma";
  EXPECT_EQ(slow_path(parse_problem("fwd bf16 alignment=8 seqlen=64 head_dim=64"),
                      typical_device("sm_90"), forced),
            "");
}

TEST(SlowPath, AProblemTooSmallToCareIsToldNothing) {
  EXPECT_EQ(slow_path(parse_problem("fwd bf16 alignment=8 num_heads=1 seqlen=1:16 head_dim=64"),
                      typical_device("sm_90")),
            "");
  EXPECT_EQ(slow_path(parse_problem("fwd bf16 alignment=2 batch=0"), typical_device("sm_90")), "");
}

}  // namespace
}  // namespace attnforge
