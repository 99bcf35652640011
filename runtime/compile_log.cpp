// compile_log.cpp - reads the texts of NVRTC and ptxas. They differ a little between versions:
// lines are recognised by their words, not by their columns.
#include "runtime/compile_log.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

namespace attnforge {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
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

/// NVRTC writes "file(3): error: ...", "file(3): error #20: ..." and "nvrtc: error: ..."; ptxas
/// "..., line 3; error   : ..." and "ptxas fatal   : ...".
bool is_error(std::string_view line) {
  return contains(line, "error:") || contains(line, "): error #") || contains(line, "error   :") ||
         contains(line, "fatal   :");
}

bool is_other_diagnostic(std::string_view line) {
  return contains(line, ": warning") || contains(line, "warning :") || contains(line, "Remark:") ||
         contains(line, "info    :") || contains(line, "detected in the compilation");
}

}  // namespace

CompileLog read_compile_log(std::string_view text) {
  CompileLog log;
  for (std::string_view line : lines_of(text)) {
    if (is_chatter(line)) continue;
    const auto stack = number_before(line, " bytes stack frame");
    const auto stores = number_before(line, " bytes spill stores");
    const auto loads = number_before(line, " bytes spill loads");
    if (stack && stores && loads) {
      log.stack_bytes = std::max(log.stack_bytes, *stack);
      log.spill_store_bytes += *stores;
      log.spill_load_bytes += *loads;
      continue;
    }
    const auto registers = number_before(line, " registers");
    if (registers && contains(line, "ptxas info") && contains(line, "Used ")) {
      log.has_resources = true;
      log.registers = std::max(log.registers, *registers);
      log.smem_static_bytes = std::max(log.smem_static_bytes,
                                       number_before(line, " bytes smem").value_or(0));
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
  for (std::string_view line : lines_of(log)) {
    if (is_error(line))
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

namespace {

/// "score(12): error: ..." or "mask(1): error #20: ...".
struct CodeError {
  std::string_view field, message;
  int line = 0;
};

std::optional<CodeError> code_error(std::string_view line) {
  for (const std::string_view field : {"score", "mask"}) {
    if (!line.starts_with(field) || line.substr(field.size(), 1) != "(") continue;
    const std::string_view rest = line.substr(field.size() + 1);
    CodeError error{field, {}, 0};
    const auto [end, failed] = std::from_chars(rest.data(), rest.data() + rest.size(), error.line);
    const std::string_view after = rest.substr(static_cast<std::size_t>(end - rest.data()));
    const std::size_t colon = after.find(": ", 3);
    if (failed != std::errc() || !after.starts_with("): error") || colon == after.npos)
      return std::nullopt;
    error.message = after.substr(colon + 2);
    return error;
  }
  return std::nullopt;
}

/// NVRTC shows lines indented by two blanks, and under them a caret.
std::size_t caret_of(std::string_view line) {
  const std::size_t at = line.find_first_not_of(' ');
  return at != line.npos && at >= 2 && line.substr(at) == "^" ? at : line.npos;
}

// What stands before and after a text (templates/host/user_code): not the user's to see.
constexpr std::string_view kBeforeText = "  return value_of_", kAfterText = " ));";

std::string_view without_brackets(std::string_view shown) {
  if (shown.ends_with(kAfterText)) shown.remove_suffix(kAfterText.size());
  return shown;
}

}  // namespace

std::string errors_in_code(std::string_view log, std::size_t max_bytes) {
  std::string errors;
  const std::vector<std::string_view> lines = lines_of(log);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::optional<CodeError> error = code_error(lines[i]);
    if (!error) continue;
    std::string more(error->field);
    more += ", line " + std::to_string(error->line);
    std::string shown;
    std::string_view message = error->message;
    bool is_of_value = false;
    for (std::size_t j = i + 1; j < lines.size() && j < i + 8 && !is_error(lines[j]); ++j) {
      const std::size_t caret = caret_of(lines[j]);
      if (caret == lines[j].npos) continue;
      is_of_value = lines[j - 1].starts_with(kBeforeText);
      if (is_of_value) {
        more += ", column 1";
        if (message.starts_with("no instance")) message = "the text's value is not a number";
        break;
      }
      more += ", column " + std::to_string(caret - 1);
      shown.append("\n").append(without_brackets(lines[j - 1]));
      shown.append("\n").append(lines[j]);
      break;
    }
    if (is_of_value && !errors.empty()) break;  // follows from the others
    more.append(": ").append(message).append(shown);
    if (errors.find(more) != errors.npos) continue;  // a template is read more than once
    if (errors.size() + more.size() + 1 > max_bytes) break;
    errors.append(errors.empty() ? "" : "\n").append(more);
  }
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
