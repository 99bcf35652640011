// wgmma_text.cpp - asm statements name each register: a shape cannot be a parameter of a template.
#include "templates/hopper/wgmma_text.h"

#include <fmt/format.h>

#include "attnforge/element_format.h"
#include "attnforge/error.h"

namespace attnforge {
namespace {

constexpr const char* kNextLine = "\"\n        \"";  // of a string in the source

const ElementFormat& row_of(int dtype) { return format_of(static_cast<DType>(dtype)); }

/// An instruction of a shape, and what a statement says of its registers.
struct Instruction {
  int n;
  int registers;        // of d; other operands are numbered from here
  std::string text;     // as far as d
  std::string outputs;  // d, as the statement takes it

  Instruction(int dtype, int columns) : n(columns), registers(columns / 2) {
    ATTNFORGE_ASSERT(n % 8 == 0 && n >= 8 && n <= 256, "wgmma has n = 8, 16, ... 256");
    const std::string_view type = row_of(dtype).ptx_name;
    std::string d;
    for (int i = 0; i < registers; ++i) {
      // Lines of the source as people read it: 16 registers of the string, 4 of the operands.
      d += fmt::format("{}{}%{}", i == 0 ? "" : ", ", i % 16 == 0 ? kNextLine : "", i);
      outputs += fmt::format("{}\"+f\"(d[{}][{}])",
                             i == 0       ? ""
                             : i % 4 == 0 ? ",\n          "
                                          : ", ",
                             i / 4, i % 4);
    }
    text = fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{} {{{}}}{}", n,
                       256 / row_of(dtype).bits, type, type, d, kNextLine);
  }
  /// The i-th operand after d.
  std::string input(int i) const { return fmt::format("%{}", registers + i); }
  std::string four(int first) const {
    return fmt::format("{{{}, {}, {}, {}}}", input(first), input(first + 1), input(first + 2),
                       input(first + 3));
  }
  std::string d_parameter() const { return fmt::format("float (&d)[{}][4]", n / 8); }
};

/// A function of a struct.
std::string function(std::string_view head, std::string_view body, std::string_view outputs,
                     std::string_view inputs) {
  return fmt::format(
      "  ATTNFORGE_DEVICE static void {} {{\n    asm volatile(\"{}\"\n        : {}\n        : "
      "{});\n  }}\n",
      head, body, outputs, inputs);
}

/// In descriptors' units, the distance of step k from the first. Distances are operands.
std::string in_chunks(const std::string& chunk, int k) {
  constexpr int kChunkSteps = 4;  // of 64 columns
  return fmt::format("{} * {} + {}", chunk, k / kChunkSteps, k % kChunkSteps * 2);
}
std::string in_rows(const std::string& step, int k) { return fmt::format("{} * {}", step, k); }

std::string product_struct(std::string_view form, int dtype, const WgmmaProduct& product,
                           std::string_view distances, std::string_view member) {
  return fmt::format("template <>\nstruct Wgmma{}<{}, {}, {}> {{\n  template <{}>\n{}}};\n", form,
                     row_of(dtype).kernel_name, product.n, product.steps, distances, member);
}

/// Operands after d: a's registers, b, the distance.
std::string regs_mn_text(int dtype, const WgmmaProduct& product) {
  const Instruction instruction(dtype, product.n);
  const int b = 4 * product.steps;
  std::string steps, registers;
  for (int k = 0; k < product.steps; ++k) {
    steps += fmt::format("{}add.s64 b, {}, {}; {}, {}, b, 1, 1, 1, 1; ", kNextLine,
                         instruction.input(b), in_rows(instruction.input(b + 1), k),
                         instruction.text, instruction.four(4 * k));
    registers += fmt::format(
        "\"r\"(a[{0}][0]), \"r\"(a[{0}][1]), \"r\"(a[{0}][2]), \"r\"(a[{0}][3]),\n          ", k);
  }
  return product_struct(
      "RegsMn", dtype, product, "int kBStep",
      function(fmt::format("add({}, const u32 (&a)[{}][4], u64 b)", instruction.d_parameter(),
                           product.steps),
               "{ .reg .b64 b; wgmma.fence.sync.aligned; " + steps + "}", instruction.outputs,
               registers + "\"l\"(b), \"n\"(kBStep)\n        : \"memory\""));
}

/// Operands after d: a, b, their distances.
std::string smem_text(int dtype, const WgmmaProduct& product) {
  const Instruction instruction(dtype, product.n);
  const bool a_mn = product.form == WgmmaProduct::kMnK;
  const std::string a_distance = a_mn ? "kAStep" : "kAChunk";
  std::string steps;
  for (int k = 0; k < product.steps; ++k)
    steps += fmt::format(
        "{}add.s64 a, {}, {}; add.s64 b, {}, {}; {}, a, b, {}, 1, 1, {}, 0; ", kNextLine,
        instruction.input(0),
        a_mn ? in_rows(instruction.input(2), k) : in_chunks(instruction.input(2), k),
        instruction.input(1), in_chunks(instruction.input(3), k), instruction.text, k > 0 ? 1 : 0,
        a_mn ? 1 : 0);
  return product_struct(
      a_mn ? "MnK" : "KK", dtype, product, "int " + a_distance + ", int kBChunk",
      function(fmt::format("set({}, u64 a, u64 b)", instruction.d_parameter()),
               "{ .reg .b64 a, b; wgmma.fence.sync.aligned; " + steps + "}", instruction.outputs,
               fmt::format("\"l\"(a), \"l\"(b), \"n\"({}), \"n\"(kBChunk)\n        : \"memory\"",
                           a_distance)));
}

}  // namespace

std::string wgmma_text(int dtype, int n) {
  const Instruction instruction(dtype, n);
  const auto predicated = [&](int accumulate, const std::string& operands) {
    return fmt::format("{{ .reg .pred p; setp.ne.b32 p, {}, 0; {}, {}; }}",
                       instruction.input(accumulate), instruction.text, operands);
  };
  // Behind the operands: accumulate, signs of a and b, and which of the shared ones are MN-major:
  // of 8 bits none can be.
  const bool bytes = row_of(dtype).bits == 8;
  const std::string fragment = instruction.d_parameter() + ", ";
  const std::string four = "u32 a0, u32 a1, u32 a2, u32 a3, u64 b";
  const std::string four_inputs = R"("r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))";
  return fmt::format("template <>\nstruct Wgmma<{}, {}> {{\n", row_of(dtype).kernel_name, n) +
         function("smem_smem(" + fragment + "u64 a, u64 b, int accumulate)",
                  predicated(2, fmt::format("{}, {}, p, 1, 1{}", instruction.input(0),
                                            instruction.input(1), bytes ? "" : ", 0, 0")),
                  instruction.outputs, R"("l"(a), "l"(b), "r"(accumulate))") +
         function("regs_smem(" + fragment + four + ", int accumulate)",
                  predicated(5, fmt::format("{}, {}, p, 1, 1{}", instruction.four(0),
                                            instruction.input(4), bytes ? "" : ", 0")),
                  instruction.outputs, four_inputs + R"(, "r"(accumulate))") +
         (bytes ? ""
                : function("regs_smem_mn(" + fragment + four + ")",
                           fmt::format("{}, {}, {}, 1, 1, 1, 1;", instruction.text,
                                       instruction.four(0), instruction.input(4)),
                           instruction.outputs, four_inputs)) +
         "};\n";
}

std::string wgmma_product_text(int dtype, const WgmmaProduct& product) {
  return product.form == WgmmaProduct::kRegsMn ? regs_mn_text(dtype, product)
                                               : smem_text(dtype, product);
}

}  // namespace attnforge
