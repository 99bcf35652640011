// overrides.cpp - reads the environment's switches for experiments.
#include "plan/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "attnforge/error.h"
#include "cache/file/journal.h"
#include "cache/file/trust.h"
#include "generator/arch.h"
#include "generator/config.h"
#include "runtime/log.h"
#include "templates/embedded.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEntries = 10000;  // of a folder of templates; fewer than / has, named by mistake

std::string variable(const char* value) { return value == nullptr ? "" : value; }

[[noreturn]] void refuse(const std::string& name, const std::string& value,
                         const std::string& wanted) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}={}: {}; or unset it", name, value, wanted));
}

/// 0 when unset.
int number_of(const std::string& name, const std::string& value, const Allowed& allowed,
              const std::string& wanted) {
  if (value.empty()) return 0;
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !allowed.has(number))
    refuse(name, value, wanted);
  return number;
}

/// 0 when unset. A value that no family takes, of those that `family` leaves, would leave no kernel
/// for any problem.
int checked_block_n(const std::string& value, const std::string& family) {
  const std::string name = "ATTNFORGE_BLOCK_N";
  std::string takers;
  bool taken = false;
  const int block_n = number_of(name, value, from_to(1, std::numeric_limits<int>::max()),
                                "it is how many keys a tile has, such as 64");
  for (const Family* each : registry()) {
    if (!family.empty() && each->name != family) continue;
    for (const FieldRule& rule : each->fields) {
      if (rule.name != "block_n") continue;
      takers += fmt::format("{}{} takes {}", takers.empty() ? "" : ", ", each->name,
                            to_string(rule.allowed));
      taken |= rule.allowed.has(block_n);
    }
  }
  if (block_n != 0 && !taken)
    refuse(name, value, takers.empty() ? family + " has no block_n" : takers);
  return block_n;
}

int checked_smem_bytes(const std::string& value) {
  int most = 0;
  for (const Arch& arch : archs()) most = std::max(most, arch.smem_per_block_bytes);
  return number_of("ATTNFORGE_SMEM_BYTES", value, from_to(1, most),
                   fmt::format("it is how many bytes of shared memory a block may take, such as "
                               "49152; no GPU has more than {}",
                               most));
}

std::string checked_family(const std::string& name) {
  if (name.empty() || find_family(name) != nullptr) return name;
  std::string known;
  for (const Family* family : registry())
    known += (known.empty() ? "" : ", ") + std::string(family->name);
  refuse("ATTNFORGE_FAMILY", name, "no kernel family is named so; there are " + known);
}

std::string checked_kernel_name(const std::string& name) {
  const auto is_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  const bool good = std::all_of(name.begin(), name.end(), is_word) &&
                    (name.empty() || !std::isdigit(static_cast<unsigned char>(name.front())));
  if (!good) refuse("ATTNFORGE_KERNEL_NAME", name, "a kernel's name is a C identifier");
  return name;
}

bool checked_switch(const std::string& name, const std::string& value) {
  if (!value.empty() && value != "0" && value != "1") refuse(name, value, "it is 1 or 0");
  return value == "1";
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file)
    throw Error(ErrorCode::kIo,
                fmt::format("cannot read {} of ATTNFORGE_TEMPLATES", path.string()));
  return text;
}

/// Configs, their base and argument structs are compiled into the library too: kernel and host
/// would disagree.
bool shared_with_host(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name == "config.h" || name == "shape.h" || name == "params.h" || name == "base_params.h";
}

/// The embedded headers, with those of `folder` in their place or in addition.
std::vector<TemplateFile> headers_with(const std::string& folder) {
  std::vector<TemplateFile> headers;
  for (const Header& header : embedded_headers())
    headers.push_back({std::string(header.path), std::string(header.text)});
  if (folder.empty()) return headers;

  const auto wrong = [&](const std::string& wanted) {
    refuse("ATTNFORGE_TEMPLATES", folder, wanted);
  };
  std::error_code failed, dangling;
  if (!fs::is_directory(folder, failed)) wrong("it is the path of a folder with headers");
  int replaced = 0, seen = 0;
  fs::recursive_directory_iterator entry(folder, failed), end;
  for (; !failed && entry != end; entry.increment(failed)) {
    if (++seen > kMostEntries)
      wrong(fmt::format("it holds more than {} files and folders", kMostEntries));
    if (entry.depth() == 2) entry.disable_recursion_pending();  // at most parts/PART/piece.cuh
    const std::string extension = entry->path().extension().string();
    if (!entry->is_regular_file(dangling) || (extension != ".cuh" && extension != ".h")) continue;
    const std::string path = entry->path().lexically_relative(folder).generic_string();
    if (shared_with_host(path)) {
      wrong(fmt::format("it holds {}, which the library is compiled with too; leave it out", path));
    }
    const auto own = std::find_if(headers.begin(), headers.end(),
                                  [&](const TemplateFile& each) { return each.path == path; });
    if (own == headers.end()) {
      headers.push_back({path, text_of(entry->path())});
    } else {
      own->text = text_of(entry->path());
      ++replaced;
    }
  }
  if (failed) wrong(fmt::format("all of it can be read: {}", failed.message()));
  if (replaced == 0)
    wrong(
        "it holds no header to replace one, such as tile/softmax.cuh or "
        "oracle/fwd_naive/kernel.cuh");
  return headers;
}

}  // namespace

std::string family_from_environment() { return variable(secure_getenv("ATTNFORGE_FAMILY")); }

Overrides overrides_from_environment() {
  // Not overrides, but read where nothing can be said of them any more.
  log_level_from_environment();
  wal_asked_for();
  anybody_is_trusted();

  Overrides overrides;
  overrides.family = checked_family(family_from_environment());
  overrides.block_n = checked_block_n(variable(secure_getenv("ATTNFORGE_BLOCK_N")),
                                      overrides.family);
  overrides.smem_bytes = checked_smem_bytes(variable(secure_getenv("ATTNFORGE_SMEM_BYTES")));
  overrides.kernel_name = checked_kernel_name(variable(secure_getenv("ATTNFORGE_KERNEL_NAME")));
  overrides.print_launch = checked_switch("ATTNFORGE_PRINT_LAUNCH",
                                          variable(secure_getenv("ATTNFORGE_PRINT_LAUNCH")));
  overrides.check_inputs = checked_switch("ATTNFORGE_CHECK_INPUTS",
                                          variable(secure_getenv("ATTNFORGE_CHECK_INPUTS")));
  const std::string folder = variable(secure_getenv("ATTNFORGE_TEMPLATES"));
  overrides.own_templates = !folder.empty();
  if (overrides.own_templates || !overrides.kernel_name.empty())
    overrides.headers = headers_with(folder);
  return overrides;
}

}  // namespace attnforge
