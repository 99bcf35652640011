#include "templates/host/kernel_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "templates/embedded.h"

namespace attnforge {
namespace {

std::string include_line(std::string_view header) {
  return fmt::format("#include \"{}\"\n", header);
}

/// What pieces/concepts.cuh asks of a piece: {0} is it, {1} the argument's type, {2} its QueryTile.
struct Seam {
  Slot slot;
  std::string_view concept_of_it;
  std::string_view arguments = "";  // of a piece that is a template
};
constexpr Seam kSeams[] = {
    {Slot::kOrder, "Order<{0}, {1}, {2}>"},
    {Slot::kLengths, "Lengths<{0}, {1}>"},
    {Slot::kWalk, "Walk<{0}, {1}, {2}>"},
    {Slot::kKeys, "TmaKeys<{0}, {2}, Pieces::Walk>"},
    {Slot::kKeys, "Keys<{0}, {2}, Pieces::Walk>", "<kBf16>"},
    {Slot::kScore, "Score<{0}, {2}>"},
    {Slot::kSlope, "Slope<{0}, {2}>"},
    {Slot::kMask, "Mask<{0}, {2}>"},
    {Slot::kOutput, "Output<{0}, {2}>", "<kFp16, 16, true>"},
    {Slot::kSplits, "Splits<{0}, {1}>"},
};
constexpr std::string_view kConcepts = "pieces/concepts.cuh";

/// That the pieces are what their slots want. Dense ones are checked by a test: an entry without
/// others is not longer for it.
std::string checks_of_pieces(const PieceSet& pieces, std::string_view argument) {
  std::string lines;
  for (const PieceSet::Filled& filled : pieces.filled()) {
    const auto seam = std::ranges::find_if(kSeams, [&](const Seam& s) {
      return s.slot == filled.slot && s.arguments.empty() == filled.piece.parameters.empty();
    });
    if (seam == std::end(kSeams)) continue;
    const std::string type = fmt::format("Pieces::{}{}", member_of(seam->slot), seam->arguments);
    lines += fmt::format("static_assert(seams::{}, \"{} is not what {} says\");\n",
                         fmt::format(fmt::runtime(seam->concept_of_it), type, argument,
                                     fmt::format("QueryTile<{}, 1, Pieces::Lengths>", argument)),
                         type, kConcepts);
  }
  return lines;
}

/// checked: there are checks_of_pieces().
std::string include_lines(const KernelTraits& kernel, const PieceSet& pieces, bool checked) {
  std::string lines = include_line(fmt::format("{}/kernel.cuh", kernel.folder));
  if (checked) lines += include_line(kConcepts);
  const auto add = [&](std::string_view header) {
    const std::string line = include_line(header);
    if (lines.find(line) == lines.npos) lines += line;
  };
  for (const std::string_view header : pieces.headers()) add(header);
  if (kernel.pieces != nullptr) add(kernel.pieces->header);
  for (const PieceSet::Filled& filled : pieces.filled()) {
    if (!filled.piece.header.empty()) add(filled.piece.header);
  }
  return lines;
}

std::string struct_of_pieces(const KernelTraits& kernel, const PieceSet& pieces) {
  if (kernel.pieces == nullptr) return "";
  std::string members;
  for (const PieceSet::Filled& filled : pieces.filled()) {
    if (const std::string_view name = member_of(filled.slot); !name.empty())
      members += fmt::format("\n  {}using {} = {};", filled.piece.parameters, name,
                             filled.piece.type);
  }
  return fmt::format("struct Pieces : {}<kConfig> {{{}{}}};\n", kernel.pieces->type, members,
                     members.empty() ? "" : "\n");
}

/// After the config.
std::string template_arguments(const KernelTraits& kernel, const Entry& entry) {
  if (kernel.pieces == nullptr) return "";
  // A family's own argument is the default.
  return entry.argument == kernel.params.type ? ", Pieces" : ", Pieces, " + entry.argument;
}

std::string kernel_text(std::string_view symbol, std::string_view bounds, std::string_view params,
                        std::string_view type) {
  return fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ {} p) {{\n"
      "  {}::run(p);\n"
      "}}\n",
      bounds, symbol, params, type);
}

std::string size_line(std::string_view params, std::size_t bytes) {
  return fmt::format("static_assert(sizeof({}) == {});\n", params, bytes);
}

AssemblyInfo info_of(const Assembly& assembly, const PieceSet& pieces) {
  if (assembly.kernel.pieces == nullptr) return {};
  AssemblyInfo info{.base = std::string(assembly.kernel.pieces->type)};
  for (const PieceSet::Filled& filled : pieces.filled()) {
    std::vector<std::string> changes;
    for (const PieceSet::Change& change : filled.changes)
      changes.push_back(fmt::format("{} {}", change.part, change.how));
    info.pieces.push_back({std::string(name_of(filled.slot)), filled.piece.type,
                           std::string(filled.piece.header), std::move(changes)});
  }
  for (const KernelBeside& beside : assembly.kernel.beside)
    info.steps.push_back(
        {symbol_of(assembly, beside.end_of_symbol), std::string(assembly.kernel.type), true});
  for (const Part* part : assembly.parts) {
    for (const Step& step : part->steps) {
      if (step.in == nullptr || step.in(assembly))
        info.steps.push_back({std::string(step.kernel), std::string(part->name), step.after});
    }
  }
  info.argument.push_back({std::string(assembly.kernel.params.type), assembly.kernel.params.bytes});
  for (const Part* part : assembly.in_argument)
    info.argument.push_back({std::string(part->name), part->bytes(assembly)});
  return info;
}

/// The family's other kernels, and the steps of parts.
std::string other_kernels(const Assembly& assembly, Entry& entry) {
  std::string text;
  for (const KernelBeside& beside : assembly.kernel.beside) {
    entry.pieces.include(beside.header);
    text += kernel_text(symbol_of(assembly, beside.end_of_symbol), beside.bounds, entry.argument,
                        fmt::format(fmt::runtime(beside.type), entry.argument));
  }
  for (const Part* part : assembly.parts) {
    for (const Step& step : part->steps) {
      if (step.in != nullptr && !step.in(assembly)) continue;
      const Step::Text of = step.text(entry, assembly);
      const std::string params = step_argument_type(assembly, *part);
      const std::string size = size_line(params, step_argument_bytes(assembly, *part));
      if (text.find(size) == text.npos) text += size;
      const std::string blocks = of.blocks_per_sm == 0 ? "" : fmt::format(", {}", of.blocks_per_sm);
      text += of.declarations +
              kernel_text(step.kernel, fmt::format("{}{}", of.threads, blocks), params, of.type);
    }
  }
  return text;
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

Source kernel_source(const Config& config, const Shape& shape, const Assembly& assembly) {
  const KernelTraits& kernel = assembly.kernel;
  Entry entry = entry_of(assembly);
  const std::string others = other_kernels(assembly, entry);  // before the headers are listed
  const std::string checks = checks_of_pieces(entry.pieces, entry.argument);
  Source source;
  source.name = symbol_of(assembly);
  source.options = entry.options;
  source.assembly = info_of(assembly, entry.pieces);
  source.entry = fmt::format("// generated: {}\n", to_string(config)) +
                 include_lines(kernel, entry.pieces, !checks.empty()) + entry.declarations +
                 "using namespace attnforge;\n" +
                 size_line(entry.argument, argument_bytes(assembly)) +
                 fmt::format("inline constexpr {}Config kConfig{};\n", kernel.type,
                             initializer(config, shape, kernel.launch_fields)) +
                 struct_of_pieces(kernel, entry.pieces) + checks + others +
                 kernel_text(
                     source.name,
                     fmt::format("kConfig.{}, kConfig.{}", kernel.threads, kernel.blocks_per_sm),
                     entry.argument,
                     fmt::format("{}<kConfig{}>", kernel.type, template_arguments(kernel, entry)));
  flatten(source, embedded_headers());
  return source;
}

Source kernel_source(const Config& config, const Shape& shape, const Problem& problem,
                     const KernelTraits& kernel) {
  return kernel_source(config, shape, assemble(problem, shape, kernel));
}

}  // namespace attnforge
