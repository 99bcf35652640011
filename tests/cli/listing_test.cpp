// listing_test.cpp - what disassemblers and NVRTC print, as lines with the lines they come from.
#include "cli/output/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace attnforge::cli {
namespace {

using testing::ElementsAre;
using Lines = std::vector<int>;

Lines origin(const Listing& listing, std::size_t line) {
  const int index = listing.lines.at(line).origin;
  return index < 0 ? Lines{} : listing.origins.at(static_cast<std::size_t>(index));
}

std::vector<std::string> texts(const Listing& listing) {
  std::vector<std::string> all;
  for (const Listing::Line& line : listing.lines) all.push_back(line.text);
  return all;
}

constexpr const char* kSass = R"(	.target	sm_90a

//--------------------- .text.kernel --------------------------
	.section	.text.kernel,"ax",@progbits
        .size           kernel,(.L_x_155 - kernel)
kernel:
.text.kernel:
	//## File "/tmp/k.cu", line 55
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/tmp/k.cu", line 394 inlined at "/tmp/k.cu", line 1279
	//## File "/tmp/k.cu", line 1279 inlined at "/tmp/k.cu", line 56
	//## File "/tmp/k.cu", line 56
        /*0010*/               @P0 BRA `(.L_x_1) ;                   /* 0x0000000000047947 */
        /*0020*/                   UMOV UR4, 0x400 ;
.L_x_108:
.L_x_1:
	//## File "/tmp/k.cu", line 55
        /*1a30*/                   EXIT ;
)";

TEST(Listing, SassKnowsTheLineAndThoseThatItWasInlinedInto) {
  const Listing listing = sass_listing(kSass);
  EXPECT_THAT(texts(listing),
              ElementsAre("kernel:", "0000  LDC R1, c[0x0][0x28]", "0010  @P0 BRA `(.L_x_1)",
                          "0020  UMOV UR4, 0x400", ".L_x_1:", "1a30  EXIT"));
  EXPECT_EQ(origin(listing, 0), Lines{});
  EXPECT_EQ(origin(listing, 1), Lines({55}));
  EXPECT_EQ(origin(listing, 2), Lines({394, 1279, 56}));
  EXPECT_EQ(origin(listing, 3), Lines({394, 1279, 56})) << "until the next mark";
  EXPECT_EQ(origin(listing, 5), Lines({55}));
  EXPECT_EQ(listing.origins.size(), 2u) << "each list once";
}

TEST(Listing, SassWithoutLineInfoIsStillAListing) {
  // As cuobjdump prints it.
  const Listing listing = sass_listing(
      "\tcode for sm_86\n\t\tFunction : kernel\n\t.headerflags\t@\"EF_CUDA_SM86\"\n"
      "        /*0000*/                   MOV R1, c[0x0][0x28] ;           /* 0x00000a0000017a02 "
      "*/\n"
      "                                                                    /* 0x000fe40000000f00 "
      "*/\n");
  EXPECT_THAT(texts(listing), ElementsAre("0000  MOV R1, c[0x0][0x28]"));
  EXPECT_EQ(origin(listing, 0), Lines{});
}

constexpr const char* kPtx = R"(.version 9.0
.visible .entry kernel(
	.param .align 64 .b8 kernel_param_0[704]
)
.maxntid 384, 1, 1
{
	.reg .b32 	%r<3>;
	.loc	1 55 0
	mov.u32 	%r1, %tid.x;
$L__tmp1:
	@%p2 bra 	$L__BB0_2;
	.loc	1 1748 5, function_name $L__info_string0, inlined_at 1 56 3
	.loc	1 394 3, function_name $L__info_string2, inlined_at 1 1748 5
	// begin inline asm
	{ .reg .pred p; wgmma.mma {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9, %f10}, %rd1, p; }
	// end inline asm
$L__BB0_2:
	ret;

}
	.file	1 "/tmp/k.cu"
	.section	.debug_str
	{
$L__info_string0:
.b8 95,90
	}
)";

TEST(Listing, PtxKnowsLinesThroughTwoInlinings) {
  const Listing listing = ptx_listing(kPtx);
  EXPECT_THAT(texts(listing), ElementsAre(".visible .entry kernel(", ".reg .b32 \t%r<3>;",
                                          "mov.u32 \t%r1, %tid.x;", "@%p2 bra \t$L__BB0_2;",
                                          "{ .reg .pred p; wgmma.mma {%f1 ... %f10}, %rd1, p; }",
                                          "$L__BB0_2:", "ret;"));
  EXPECT_EQ(origin(listing, 2), Lines({55}));
  EXPECT_EQ(origin(listing, 4), Lines({394, 1748, 56}));
}

TEST(Listing, AnyTextIsRead) {
  for (const char* text : {"", "/*", "//## File \"", "/*zz*/ EXIT ;", "{", "}", "\t.loc\n",
                           ".loc 1", ".visible\n{\n{%", "/*0000*/"}) {
    EXPECT_TRUE(sass_listing(text).lines.empty()) << text;
    ptx_listing(text);
  }
}

}  // namespace
}  // namespace attnforge::cli
