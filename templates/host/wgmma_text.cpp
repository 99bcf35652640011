// wgmma_text.cpp - an asm statement names each of its registers, so a shape cannot be a parameter
// of a template (PTX ISA, "wgmma.mma_async").
#include "templates/host/wgmma_text.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "templates/base.cuh"

namespace attnforge {
namespace {

/// One function of the struct.
std::string function(std::string_view head, std::string_view body, std::string_view outputs,
                     std::string_view inputs) {
  return fmt::format(
      "  ATTNFORGE_DEVICE static void {} {{\n    asm volatile(\"{}\"\n        : {}\n        : "
      "{});\n  }}\n",
      head, body, outputs, inputs);
}

}  // namespace

std::string wgmma_text(int dtype, int n, WgmmaForms forms) {
  ATTNFORGE_ASSERT(n % 8 == 0 && n >= 8 && n <= 256, "wgmma has n = 8, 16, ... 256");
  const char* const type = dtype == kBf16 ? "bf16" : "f16";
  const int registers = n / 2;  // of d; the inputs are numbered from here
  std::string d, outputs;
  for (int i = 0; i < registers; ++i) {
    // Lines of the source as people read it: 16 registers of the string, 4 of the operands.
    d += fmt::format("{}{}%{}", i == 0 ? "" : ", ", i % 16 == 0 ? "\"\n        \"" : "", i);
    outputs += fmt::format("{}\"+f\"(d[{}][{}])",
                           i == 0       ? ""
                           : i % 4 == 0 ? ",\n          "
                                        : ", ",
                           i / 4, i % 4);
  }
  const std::string instruction = fmt::format(
      "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}\"\n        \"", n, type, type, d);
  const auto input = [&](int i) { return fmt::format("%{}", registers + i); };
  const std::string a_regs = fmt::format("{{{}, {}, {}, {}}}", input(0), input(1), input(2),
                                         input(3));
  const auto predicated = [&](int accumulate, const std::string& operands) {
    return fmt::format("{{ .reg .pred p; setp.ne.b32 p, {}, 0; {}, {}; }}", input(accumulate),
                       instruction, operands);
  };
  // Behind the operands: accumulate, signs of a and b, and which of the shared ones are MN-major.
  const std::string fragment = fmt::format("float (&d)[{}][4], ", n / 8);
  const std::string four = "u32 a0, u32 a1, u32 a2, u32 a3, u64 b";
  const std::string four_inputs = R"("r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))";
  return fmt::format("template <>\nstruct Wgmma<{}, {}> {{\n", dtype == kBf16 ? "kBf16" : "kFp16",
                     n) +
         function("smem_smem(" + fragment + "u64 a, u64 b, int accumulate)",
                  predicated(2, fmt::format("{}, {}, p, 1, 1, 0, 0", input(0), input(1))), outputs,
                  R"("l"(a), "l"(b), "r"(accumulate))") +
         function("regs_smem(" + fragment + four + ", int accumulate)",
                  predicated(5, fmt::format("{}, {}, p, 1, 1, 0", a_regs, input(4))), outputs,
                  four_inputs + R"(, "r"(accumulate))") +
         function("regs_smem_mn(" + fragment + four + ")",
                  fmt::format("{}, {}, {}, 1, 1, 1, 1;", instruction, a_regs, input(4)), outputs,
                  four_inputs) +
         (forms == WgmmaForms::kTransposedA
              ? function("smem_mn_smem(" + fragment + "u64 a, u64 b, int accumulate)",
                         predicated(2, fmt::format("{}, {}, p, 1, 1, 1, 0", input(0), input(1))),
                         outputs, R"("l"(a), "l"(b), "r"(accumulate))")
              : "") +
         "};\n";
}

}  // namespace attnforge
