#include "runtime/compile/machine_code_digest.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "generator/source.h"

namespace attnforge {
namespace {

using Bytes = std::span<const std::byte>;

/// In the file's order. The contents of one without bytes in the file, such as shared memory, are
/// its size.
struct Section {
  std::string_view name;
  Bytes contents;
};
using Sections = std::vector<Section>;

constexpr std::string_view kConstants = ".nv.global.init";

std::optional<Bytes> part_of(Bytes file, std::uint64_t offset, std::uint64_t size) {
  if (offset > file.size() || size > file.size() - offset) return std::nullopt;
  return file.subspan(offset, size);
}

template <class Header>
std::optional<Header> header_at(Bytes file, std::uint64_t offset) {
  const std::optional<Bytes> bytes = part_of(file, offset, sizeof(Header));
  if (!bytes) return std::nullopt;
  Header header;
  std::memcpy(&header, bytes->data(), sizeof(Header));
  return header;
}

/// Nothing if it is no whole ELF file.
std::optional<Sections> sections_of(Bytes file) {
  const auto elf = header_at<Elf64_Ehdr>(file, 0);
  if (!elf || std::memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  if (!part_of(file, elf->e_phoff, std::uint64_t{elf->e_phnum} * elf->e_phentsize))
    return std::nullopt;
  const auto header = [&](std::uint64_t i) {
    return header_at<Elf64_Shdr>(file, elf->e_shoff + i * sizeof(Elf64_Shdr));
  };
  const auto names_header = header(elf->e_shstrndx);
  if (!names_header || elf->e_shentsize != sizeof(Elf64_Shdr)) return std::nullopt;
  const auto names = part_of(file, names_header->sh_offset, names_header->sh_size);
  if (!names || names->empty() || names->back() != std::byte{}) return std::nullopt;
  Sections sections;
  for (std::uint64_t i = 0; i < elf->e_shnum; ++i) {
    const auto section = header(i);
    if (!section || section->sh_name >= names->size()) return std::nullopt;
    const bool in_file = section->sh_type != SHT_NOBITS;
    const auto bytes = in_file ? part_of(file, section->sh_offset, section->sh_size)
                               : part_of(file,
                                         elf->e_shoff + i * sizeof(Elf64_Shdr) +
                                             offsetof(Elf64_Shdr, sh_size),
                                         sizeof(section->sh_size));
    if (!bytes) return std::nullopt;
    sections.push_back({reinterpret_cast<const char*>(names->data() + section->sh_name), *bytes});
  }
  return sections;
}

/// What of a section two equal kernels share.
std::string content_of(const Section& section) {
  // Names, and where those of constants lie.
  if (section.name == ".symtab" || section.name == ".strtab") return "";
  std::string content(reinterpret_cast<const char*>(section.contents.data()),
                      section.contents.size());
  if (section.name != kConstants) return content;
  std::vector<std::uint32_t> words((content.size() + 3) / 4);
  if (!content.empty()) std::memcpy(words.data(), content.data(), content.size());
  std::ranges::sort(words);
  // A config may gain a field, which is 0 in all kernels that there were.
  words.erase(words.begin(), std::ranges::upper_bound(words, 0u));
  return {reinterpret_cast<const char*>(words.data()), 4 * words.size()};
}

}  // namespace

std::string machine_code_digest(Bytes cubin) {
  std::string content;
  if (const std::optional<Sections> sections = sections_of(cubin)) {
    for (const Section& section : *sections) {
      const std::string own = content_of(section);
      content += fmt::format("{} {}:", section.name, own.size()) + own;
    }
  } else {
    content.assign(reinterpret_cast<const char*>(cubin.data()), cubin.size());
  }
  return digest_of(content);
}

}  // namespace attnforge
