#include "cache/file/network.h"

#include <fmt/format.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "cache/file/trust.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kFuse = 0x65735546;

// File systems whose locks or shared memory other machines do not see, or that user code serves.
struct FileSystem {
  std::uint32_t type;  // f_type of statfs(2)
  std::string_view name;
  bool shared;  // several machines write it
};
constexpr FileSystem kNotLocal[] = {
    {0x6969, "NFS", true},
    {0x517B, "SMB", true},
    {0xFE534D42, "SMB2", true},
    {0xFF534D42, "CIFS", true},
    {kFuse, "FUSE", false},  // sshfs and GlusterFS are, virtiofs and fuse-overlayfs are not
    {0x0BD00BD0, "Lustre", true},
    {0x47504653, "GPFS", true},
    {0x19830326, "BeeGFS", true},
    {0x00C36400, "Ceph", true},
    {0xAAD7AAEA, "PanFS", true},
    {0x5346414F, "OpenAFS", true},
    {0x6B414653, "kAFS", true},
    {0x73757245, "Coda", true},
    {0x564C, "NCP", true},
    {0x01021997, "9P", false},  // the way of sandboxes and virtual machines to their host's disk
    {0x7461636F, "OCFS2", true},
    {0x01161970, "GFS2", true},
    {0x786F4256, "VirtualBox shared folder", false},
};

const FileSystem* not_local(std::uint32_t type) {
  for (const FileSystem& each : kNotLocal)
    if (each.type == type) return &each;
  return nullptr;
}

std::optional<std::uint32_t> type_of(const fs::path& folder) {
  struct statfs facts = {};
  if (statfs(folder.empty() ? "." : folder.c_str(), &facts) != 0) return std::nullopt;
  return static_cast<std::uint32_t>(facts.f_type);
}

/// "\\040" and the like, as mountinfo has blanks.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool octal = text[i] == '\\' && i + 3 < text.size() &&
                       text.substr(i + 1, 3).find_first_not_of("01234567") == text.npos;
    if (octal) {
      plain += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 3)), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

bool on_local_file_system(const std::string& path) {
  const std::optional<std::uint32_t> type = type_of(fs::path(path).parent_path());
  return type && not_local(*type) == nullptr;
}

std::string_view shared_file_system(std::uint32_t type, std::string_view source) {
  const FileSystem* const found = not_local(type);
  const bool remote = type == kFuse && source.find(':') != source.npos;
  return found != nullptr && (found->shared || remote) ? found->name : "";
}

std::string mount_source(std::string_view mountinfo, std::string_view path) {
  std::istringstream lines{std::string(mountinfo)};
  std::string source, longest;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    const auto dash = std::find(all.begin(), all.end(), "-");
    if (all.size() < 5 || all.end() - dash < 3) continue;
    const std::string point = unescaped(all[4]);
    const bool above = point == "/" || path == point || path.starts_with(point + "/");
    if (!above || point.size() < longest.size()) continue;
    longest = point;
    source = unescaped(dash[2]);
  }
  return source;
}

std::string network_objection(const std::string& path) {
  std::error_code failed;
  fs::path there = folder_of(path);
  while (there.has_relative_path() && !fs::exists(there, failed)) there = there.parent_path();
  const std::optional<std::uint32_t> type = type_of(there);
  if (!type || not_local(*type) == nullptr || anybody_is_trusted()) return "";
  std::string source;
  if (*type == kFuse) {
    std::ifstream file("/proc/self/mountinfo");
    std::ostringstream text;
    text << file.rdbuf();
    source = mount_source(text.str(), there.native());
  }
  const std::string_view name = shared_file_system(*type, source);
  if (name.empty()) return "";
  return fmt::format(
      "{} is on a network file system ({}), where two machines that write would damage it, so it "
      "is only read: set ATTNFORGE_CACHE to a file on a local disk, and ATTNFORGE_SITE_CACHE to "
      "this one if it is to be shared",
      path, name);
}

}  // namespace attnforge
