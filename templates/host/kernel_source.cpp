// kernel_source.cpp - puts names into the generated lines.
#include "templates/host/kernel_source.h"

#include <fmt/format.h>

#include "templates/embedded.h"

namespace attnforge {

std::string initializer(const Config& config, const Shape& shape) {
  std::string text = "{" + initializer(shape);
  for (const auto& [name, value] : config.fields)
    fmt::format_to(std::back_inserter(text), ", {}", value);
  return text + "}";
}

Source kernel_source(const Config& config, const Shape& shape, const KernelNames& names) {
  using fmt::arg;
  std::string parts;
  for (const std::string_view part : names.parts) parts += fmt::format("#include \"{}\"\n", part);
  Source source;
  source.name = names.symbol;
  source.entry = fmt::format(
      "// generated: {config}\n"
      "#include \"{folder}/kernel.cuh\"\n"
      "{parts}"
      "{declarations}"
      "using namespace attnforge;\n"
      "static_assert(sizeof({params}) == {params_bytes});\n"
      "inline constexpr {type}Config kConfig{initializer};\n"
      "extern \"C\" __global__ void __launch_bounds__(kConfig.{threads}, kConfig.{blocks_per_sm})\n"
      "{symbol}(const __grid_constant__ {params} p) {{\n"
      "  {type}<kConfig>::run(p);\n"
      "}}\n",
      arg("config", to_string(config)), arg("folder", names.folder), arg("parts", parts),
      arg("declarations", names.declarations), arg("type", names.type),
      arg("initializer", initializer(config, shape)), arg("threads", names.threads),
      arg("blocks_per_sm", names.blocks_per_sm), arg("symbol", names.symbol),
      arg("params", names.params), arg("params_bytes", names.params_bytes));
  flatten(source, embedded_headers());
  return source;
}

}  // namespace attnforge
