#include "tests/templates/compile_together.h"

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/compile/machine_code_digest.h"

namespace attnforge::test {
namespace {

namespace fs = std::filesystem;

/// Of all sections that hold machine code: each kernel has its own.
int code_bytes(const std::vector<std::byte>& cubin) {
  const auto at = [&]<class T>(std::size_t offset, T value) {
    ATTNFORGE_ASSERT(offset + sizeof(T) <= cubin.size(), "a cubin is a whole ELF file");
    std::memcpy(&value, cubin.data() + offset, sizeof(T));
    return value;
  };
  const auto file = at(0, Elf64_Ehdr{});
  int bytes = 0;
  for (int i = 0; i < file.e_shnum; ++i) {
    const auto section = at(file.e_shoff + static_cast<std::size_t>(i) * file.e_shentsize,
                            Elf64_Shdr{});
    const bool code = section.sh_type == SHT_PROGBITS && (section.sh_flags & SHF_EXECINSTR) != 0;
    if (code) bytes += static_cast<int>(section.sh_size);
  }
  return bytes;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Where what is known of a compile lies: its name is a digest of all that decides the result.
fs::path place_of(const Source& source, const Arch& arch, std::string_view how) {
  static const std::string kCompiler = [] {
    std::string text = nvrtc_facts().version_text();
    for (const char* file : {"compiler.cpp", "compile_log.cpp", "machine_code_digest.cpp"})
      text += text_of(fs::path(ATTNFORGE_SOURCE_DIR) / "runtime/compile" / file);
    return digest_of(text);
  }();
  std::string all = fmt::format("{} {} {} {}", kCompiler, how, arch.name, source.name);
  for (const std::string& option : source.options) all += "\n" + option;
  return fs::path(ATTNFORGE_COMPILED) / digest_of(all + "\n\n" + source.text);
}

/// Whole or not at all: tests run at once.
void store(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  const fs::path made = fmt::format("{}.{}", path.string(), gettid());
  std::ofstream(made, std::ios::binary) << text;
  fs::rename(made, path);
}

}  // namespace

Compiled compiled(const Source& source, const Arch& arch) {
  const fs::path path = place_of(source, arch, "cubin and code");
  Compiled known;
  int serialized = 0;
  if (std::ifstream file(path); file >> known.registers >> known.smem_static_bytes >>
                                known.stack_bytes >> known.spill_store_bytes >>
                                known.spill_load_bytes >> serialized >> known.code_bytes >>
                                known.code) {
    file.ignore();
    known.wgmma_serialized = serialized != 0;
    known.log.assign(std::istreambuf_iterator<char>(file), {});
    return known;
  }
  const Cubin cubin = compile(source, arch);
  static_cast<KernelResources&>(known) = cubin;
  known.code_bytes = code_bytes(cubin.bytes);
  known.code = machine_code_digest(cubin.bytes);
  known.log = cubin.log;
  store(path, fmt::format("{} {} {} {} {} {:d} {} {}\n{}", known.registers, known.smem_static_bytes,
                          known.stack_bytes, known.spill_store_bytes, known.spill_load_bytes,
                          known.wgmma_serialized, known.code_bytes, known.code, known.log));
  return known;
}

std::string compiled_ptx(const Source& source, const Arch& arch) {
  const fs::path path = place_of(source, arch, "PTX");
  std::string ptx = text_of(path);
  if (ptx.empty()) store(path, ptx = compile_to_ptx(source, arch));
  return ptx;
}

void check_cpp(Source source, const Arch& arch) {
  if (nvrtc_facts().major >= 13) {
    source.options.emplace_back("-fdevice-syntax-only");
    source.options.emplace_back(
        "--minimal");  // without textures and all else of CUDA's own headers
  }
  const fs::path path = place_of(source, arch, "C++");
  if (fs::exists(path)) return;
  compile_to_ptx(source, arch);
  store(path, "");
}

bool passed(const std::string& what, const std::function<bool()>& passes) {
  const fs::path path = fs::path(ATTNFORGE_COMPILED) / digest_of("passed " + what);
  if (fs::exists(path)) return true;
  const bool is_right = passes();
  if (is_right) store(path, "");
  return is_right;
}

}  // namespace attnforge::test
