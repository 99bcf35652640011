// compile_log.cpp - reads the texts of NVRTC and ptxas. They differ a little between versions:
// lines are recognised by their words, not by their columns.
#include "runtime/compile/compile_log.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

namespace attnforge {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The number that stands before `words`: 32 in "Used 32 registers" for " registers".
std::optional<int> number_before(std::string_view line, std::string_view words) {
  const std::size_t end = line.find(words);
  if (end == std::string_view::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  int value = 0;
  if (std::from_chars(line.data() + begin, line.data() + end, value).ptr != line.data() + end ||
      begin == end)
    return std::nullopt;
  return value;
}

/// Lines that only announce what follows or differ from run to run.
bool is_chatter(std::string_view line) {
  if (line.find_first_not_of(" \t") == std::string_view::npos) return true;
  if (!contains(line, "ptxas info")) return false;
  return contains(line, "bytes gmem") || contains(line, "Compiling entry function") ||
         contains(line, "Function properties for") || contains(line, "Compile time =");
}

bool is_serialized_wgmma(std::string_view line) {
  return contains(line, "wgmma") && contains(line, "serialized");
}

bool is_other_diagnostic(std::string_view line) {
  return contains(line, ": warning") || contains(line, "warning :") || contains(line, "Remark:") ||
         contains(line, "info    :") || contains(line, "detected in the compilation");
}

}  // namespace

std::vector<std::string_view> log_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_error_line(std::string_view line) {
  return contains(line, "error:") || contains(line, "): error #") || contains(line, "error   :") ||
         contains(line, "fatal   :");
}

CompileLog read_compile_log(std::string_view text) {
  constexpr std::string_view kEntry = "Compiling entry function '";
  CompileLog log;
  KernelResources* kernel = nullptr;  // whose lines are read
  for (std::string_view line : log_lines(text)) {
    if (const std::size_t at = line.find(kEntry); at != line.npos) {
      const std::string_view rest = line.substr(at + kEntry.size());
      kernel = &log.kernels[std::string(rest.substr(0, rest.find('\'')))];
    }
    if (is_chatter(line)) continue;
    const auto stack = number_before(line, " bytes stack frame");
    const auto stores = number_before(line, " bytes spill stores");
    const auto loads = number_before(line, " bytes spill loads");
    if (stack && stores && loads) {
      for (KernelResources* of : {static_cast<KernelResources*>(&log), kernel}) {
        if (of == nullptr) continue;
        of->stack_bytes = std::max(of->stack_bytes, *stack);
        of->spill_store_bytes += *stores;
        of->spill_load_bytes += *loads;
      }
      continue;
    }
    const auto registers = number_before(line, " registers");
    if (registers && contains(line, "ptxas info") && contains(line, "Used ")) {
      log.has_resources = true;
      const int smem_bytes = number_before(line, " bytes smem").value_or(0);
      log.registers = std::max(log.registers, *registers);
      log.smem_static_bytes = std::max(log.smem_static_bytes, smem_bytes);
      if (kernel != nullptr) {
        kernel->registers = *registers;
        kernel->smem_static_bytes = smem_bytes;
      }
      continue;
    }
    log.wgmma_serialized = log.wgmma_serialized || is_serialized_wgmma(line);
    log.remarks.append(line).append("\n");
  }
  return log;
}

std::string first_errors(std::string_view log, std::size_t max_bytes) {
  std::string errors;
  bool inside_error = false;
  for (std::string_view line : log_lines(log)) {
    if (is_error_line(line))
      inside_error = true;
    else if (is_other_diagnostic(line) || line.empty())
      inside_error = false;
    if (!inside_error) continue;
    if (errors.size() + line.size() + 1 > max_bytes) {
      if (errors.empty()) errors = line.substr(0, max_bytes);
      break;
    }
    errors.append(line).append("\n");
  }
  if (errors.empty()) errors = log.substr(log.size() - std::min(log.size(), max_bytes));
  while (!errors.empty() && errors.back() == '\n') errors.pop_back();
  return errors;
}

std::string build_id_of_ptx(std::string_view ptx) {
  constexpr std::string_view kMark = "Compiler Build ID:";
  const std::size_t at = ptx.find(kMark);
  if (at == std::string_view::npos) return "";
  std::string_view rest = ptx.substr(at + kMark.size());
  rest = rest.substr(0, rest.find('\n'));
  std::string id;
  for (char c : rest)
    if (!std::isspace(static_cast<unsigned char>(c)))
      id += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return id;
}

}  // namespace attnforge
