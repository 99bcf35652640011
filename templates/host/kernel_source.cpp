// kernel_source.cpp - puts names into the generated lines.
#include "templates/host/kernel_source.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "templates/embedded.h"

namespace attnforge {
namespace {

std::string include_line(std::string_view header) {
  return fmt::format("#include \"{}\"\n", header);
}

std::string include_lines(const KernelNames& names) {
  std::string lines = include_line(fmt::format("{}/kernel.cuh", names.folder));
  for (const std::string_view part : names.parts) lines += include_line(part);
  if (!names.pieces.empty()) lines += include_line(names.pieces_header);
  for (const Piece& piece : names.other_pieces) {
    const std::string line = include_line(piece.header);
    if (lines.find(line) == lines.npos) lines += line;
  }
  return lines;
}

std::string struct_of_pieces(const KernelNames& names) {
  if (names.pieces.empty()) return "";
  std::string lines = fmt::format("struct Pieces : {}<kConfig> {{", names.pieces);
  for (const Piece& piece : names.other_pieces)
    lines += fmt::format("\n  {}using {} = {};", piece.parameters, piece.name, piece.type);
  return lines + (names.other_pieces.empty() ? "};\n" : "\n};\n");
}

/// After the config.
std::string template_arguments(const KernelNames& names) {
  if (names.pieces.empty()) return "";
  // A family's own argument is the default.
  return names.params.find('<') == names.params.npos ? ", Pieces" : ", Pieces, " + names.params;
}

}  // namespace

std::string initializer(const Config& config, const Shape& shape, int launch_fields) {
  std::string text = "{" + initializer(shape);
  const std::span fields(config.fields);
  for (const auto& [name, value] :
       fields.first(fields.size() - static_cast<std::size_t>(launch_fields)))
    text += fmt::format(", {}", value);
  return text + "}";
}

Source kernel_source(const Config& config, const Shape& shape, const KernelNames& names) {
  using fmt::arg;
  Source source;
  source.name = names.symbol;
  source.options = names.options;
  source.entry = fmt::format(
      "// generated: {config}\n"
      "{includes}"
      "{declarations}"
      "using namespace attnforge;\n"
      "static_assert(sizeof({params}) == {params_bytes});\n"
      "inline constexpr {type}Config kConfig{initializer};\n"
      "{struct_of_pieces}"
      "{other_kernels}"
      "extern \"C\" __global__ void __launch_bounds__(kConfig.{threads}, kConfig.{blocks_per_sm})\n"
      "{symbol}(const __grid_constant__ {params} p) {{\n"
      "  {type}<kConfig{pieces}>::run(p);\n"
      "}}\n",
      arg("config", to_string(config)), arg("includes", include_lines(names)),
      arg("declarations", names.declarations), arg("type", names.type),
      arg("initializer", initializer(config, shape, names.launch_fields)),
      arg("threads", names.threads), arg("blocks_per_sm", names.blocks_per_sm),
      arg("symbol", names.symbol), arg("params", names.params),
      arg("params_bytes", names.params_bytes), arg("struct_of_pieces", struct_of_pieces(names)),
      arg("other_kernels", names.other_kernels), arg("pieces", template_arguments(names)));
  flatten(source, embedded_headers());
  return source;
}

}  // namespace attnforge
