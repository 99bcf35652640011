// source.cpp - one self-contained text from an entry and the template headers, and its digest.
#include "generator/source.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>

#include "attnforge/error.h"
#include "generator/text/code_text.h"

namespace attnforge {
namespace {

template <class... Values>
[[noreturn]] void refuse_source(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kInternal,
              "template source: " + fmt::format(format, std::forward<Values>(values)...));
}

std::string_view without_blanks_before(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

/// What follows "#word" in `line`, which begins with '#' after blanks; null data() if it is another
/// directive.
std::string_view after_directive(std::string_view line, std::string_view word) {
  std::string_view rest = without_blanks_before(without_blanks_before(line).substr(1));
  if (!rest.starts_with(word)) return {};
  return without_blanks_before(rest.substr(word.size()));
}

/// code_text() without the paths of #include lines: a digest is of what headers hold, wherever they
/// lie.
std::optional<std::string> code_without_paths(std::string_view text) {
  std::optional<std::string> code = code_text(text);
  if (!code) return code;
  constexpr std::string_view kInclude = "#include";
  for (std::size_t at = 0; (at = code->find(kInclude, at)) != code->npos;) {
    at += kInclude.size();
    const bool is_line = at == kInclude.size() || (*code)[at - kInclude.size() - 1] == '\n';
    if (is_line) code->erase(at, std::min(code->find('\n', at), code->size()) - at);
  }
  return code;
}

class Flattener {
 public:
  explicit Flattener(std::span<const Header> headers)
      : headers_(headers), placed_(headers.size(), false) {}

  void place(std::string_view text, std::string_view name, LazyCode* lazy = nullptr) {
    note_code(text, lazy);
    int conditionals = 0;  // open #if
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (without_blanks_before(line).starts_with('#') && directive(line, name, conditionals))
        continue;
      out_.append(line);
      out_.push_back('\n');
    }
  }

  void take(Source& source) {
    if (!is_clear_) {
      code_ = out_;
      for (auto name = names_.rbegin(); name != names_.rend(); ++name)
        code_.erase(name->first, name->second);
    }
    source.text = std::move(out_);
    source.code = std::move(code_);
  }

 private:
  /// Zeros between them: parts cannot run together.
  void note_code(std::string_view text, LazyCode* lazy) {
    const std::optional<std::string> own = lazy == nullptr ? code_without_paths(text)
                                                           : std::nullopt;
    const std::optional<std::string>& code = lazy == nullptr ? own : lazy->of(text);
    is_clear_ = is_clear_ && code;
    if (code) code_.append(*code);
    code_.push_back('\0');
  }

  /// True if the line is dealt with and does not go into the text.
  bool directive(std::string_view line, std::string_view name, int& conditionals) {
    if (after_directive(line, "if").data() != nullptr) ++conditionals;  // #ifdef and #ifndef too
    if (after_directive(line, "endif").data() != nullptr) --conditionals;
    if (after_directive(line, "pragma").starts_with("once")) return true;
    const std::string_view path = after_directive(line, "include");
    if (path.data() == nullptr) return false;
    include(path, line, name, conditionals);
    return true;
  }

  void include(std::string_view path, std::string_view line, std::string_view name,
               int conditionals) {
    const std::size_t close = path.find('"', 1);
    if (!path.starts_with('"') || close == path.npos) {
      refuse_source(
          "{} has the line '{}'; templates may only include headers below templates/, in quotes",
          name, line);
    }
    if (conditionals != 0) {
      refuse_source(
          "{} has the line '{}' inside #if, where another file that needs it would not find it",
          name, line);
    }
    path = path.substr(1, close - 1);
    const auto header = std::ranges::find(headers_, path, &Header::path);
    if (header == headers_.end())
      refuse_source("{} includes \"{}\", which is not below templates/", name, path);
    const auto index = static_cast<std::size_t>(header - headers_.begin());
    if (placed_[index]) return;
    placed_[index] = true;
    const std::string name_line = fmt::format("// ---- {}\n", path);
    names_.emplace_back(out_.size(), name_line.size());
    out_ += name_line;
    place(header->text, header->path, header->code);
  }

  std::span<const Header> headers_;
  std::vector<bool> placed_;
  std::string out_;
  std::vector<std::pair<std::size_t, std::size_t>> names_;  // lines of out_ that name a header
  std::string code_;
  bool is_clear_ = true;  // every part has a code
};

}  // namespace

const std::optional<std::string>& LazyCode::of(std::string_view text) {
  std::call_once(once_, [&] { code_ = code_without_paths(text); });
  return code_;
}

void flatten(Source& source, std::span<const Header> headers) {
  Flattener flattener(headers);
  flattener.place(source.entry, "the generated entry");
  flattener.take(source);
}

std::string digest_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string digest(const Source& source) {
  // Each with a 0 after it, so that parts cannot run together.
  std::string parts = (source.code.empty() ? source.text : source.code) + '\0';
  for (const std::string& option : source.options) parts += option + '\0';
  return digest_of(parts);
}

}  // namespace attnforge
