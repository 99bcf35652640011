#include "runtime/compile/same_machine_code.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

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

std::vector<std::uint32_t> sorted_words(Bytes bytes) {
  std::vector<std::uint32_t> words((bytes.size() + 3) / 4);
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  std::ranges::sort(words);
  return words;
}

bool same_section(const Section& a, const Section& b) {
  if (a.name != b.name) return false;
  // Names, and where those of constants lie.
  if (a.name == ".symtab" || a.name == ".strtab") return true;
  if (a.name == kConstants) return sorted_words(a.contents) == sorted_words(b.contents);
  return std::ranges::equal(a.contents, b.contents);
}

}  // namespace

bool same_machine_code(Bytes a, Bytes b) {
  if (std::ranges::equal(a, b)) return true;
  const std::optional<Sections> of_a = sections_of(a), of_b = sections_of(b);
  if (!of_a || !of_b) return false;
  return std::ranges::equal(*of_a, *of_b, same_section);
}

}  // namespace attnforge
