#include "runtime/compile/code_errors.h"

#include <charconv>
#include <optional>
#include <vector>

#include "runtime/compile/compile_log.h"

namespace attnforge {
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

// What stands before and after a text (templates/parts/user_code/host): not the user's to see.
constexpr std::string_view kBeforeText = "  return value_of_", kAfterText = " ));";

std::string_view without_brackets(std::string_view shown) {
  if (shown.ends_with(kAfterText)) shown.remove_suffix(kAfterText.size());
  return shown;
}

}  // namespace

std::string errors_in_code(std::string_view log, std::size_t max_bytes) {
  std::string errors;
  const std::vector<std::string_view> lines = log_lines(log);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::optional<CodeError> error = code_error(lines[i]);
    if (!error) continue;
    std::string more(error->field);
    more += ", line " + std::to_string(error->line);
    std::string shown;
    std::string_view message = error->message;
    bool is_of_value = false;
    for (std::size_t j = i + 1; j < lines.size() && j < i + 8 && !is_error_line(lines[j]); ++j) {
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

}  // namespace attnforge
