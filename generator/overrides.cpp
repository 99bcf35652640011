#include "generator/overrides.h"
#include "generator/user_code/user_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

constexpr std::string_view kBlockN = "block_n";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Gives the kernels of a generated entry names of their own; notes which was which.
void rename_kernels(Source& source, const std::string& name) {
  constexpr std::string_view
      kArgument = "(const __grid_constant__";  // of each kernel, its only one
  for (std::size_t end = 0; (end = source.entry.find(kArgument, end)) != std::string::npos;) {
    std::size_t begin = end;
    while (begin > 0 && is_word(source.entry[begin - 1])) --begin;
    const std::string own = source.entry.substr(begin, end - begin);
    const std::string now = own == source.name ? name : name + "_" + own;
    source.entry.replace(begin, own.size(), now);
    source.renamed.emplace_back(own, now);
    end = begin + now.size() + 1;
  }
  source.name = name;
}

}  // namespace

std::string forced_text(const Overrides& o) {
  std::string text;
  const auto add = [&](const std::string& word) {
    text += (text.empty() ? "forced " : " ") + word;
  };
  if (!o.family.empty()) add("family=" + o.family);
  if (o.block_n != 0) add(fmt::format("{}={}", kBlockN, o.block_n));
  if (o.smem_bytes != 0) add(fmt::format("smem_bytes={}", o.smem_bytes));
  if (o.own_templates) add("own_templates");
  if (!o.kernel_name.empty()) add("kernel_name=" + o.kernel_name);
  return text;
}

std::string stored_as(const Problem& problem, const Overrides& overrides) {
  const std::string forced = forced_text(overrides);
  return forced.empty() ? to_string(problem) : to_string(problem) + " " + forced;
}

DeviceFacts limited(DeviceFacts device, const Overrides& overrides) {
  int& bytes = device.arch.smem_per_block_bytes;
  if (overrides.smem_bytes != 0) bytes = std::min(bytes, overrides.smem_bytes);
  return device;
}

std::string force_axes(std::vector<Axis>& axes, const Overrides& overrides) {
  if (overrides.block_n == 0) return "";
  const auto axis = std::ranges::find(axes, kBlockN, &Axis::name);
  if (axis == axes.end())
    return fmt::format("has no {}, which is forced to {}", kBlockN, overrides.block_n);
  axis->values = {overrides.block_n};
  return "";
}

std::string contradiction(const Config& config, const Overrides& overrides) {
  if (!overrides.family.empty() && config.family != overrides.family) {
    return fmt::format("it is of {}, but ATTNFORGE_FAMILY forces {}: drop one of the two",
                       config.family, overrides.family);
  }
  if (overrides.block_n == 0) return "";
  for (const auto& [name, value] : config.fields) {
    if (name == kBlockN && value == overrides.block_n) return "";
  }
  return fmt::format("it does not have {}={}, which ATTNFORGE_BLOCK_N forces: drop one of the two",
                     kBlockN, overrides.block_n);
}

Source render(const Family& family, const Config& config, const Problem& problem,
              const Overrides& overrides) {
  Source source = family.render(config, problem);
  source.users_code = has_code(problem);
  if (overrides.kernel_name.empty() && !overrides.own_templates) return source;
  if (!overrides.kernel_name.empty()) rename_kernels(source, overrides.kernel_name);
  std::vector<Header> headers;
  for (const TemplateFile& file : overrides.headers) headers.push_back({file.path, file.text});
  try {
    flatten(source, headers);
  } catch (const Error& error) {
    if (!overrides.own_templates) throw;
    throw_error(ErrorCode::kInvalidArgument, "ATTNFORGE_TEMPLATES: {}", error.what());
  }
  return source;
}

std::string symbol_of(std::string_view kernel, const Source& source) {
  for (const auto& [own, now] : source.renamed) {
    if (own == kernel) return now;
  }
  return std::string(kernel);
}

}  // namespace attnforge
