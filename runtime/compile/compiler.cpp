// compiler.cpp - one NVRTC program a compile; what ptxas says about it becomes fields of the Cubin.
#include "runtime/compile/compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "generator/text/throw_error.h"
#include "runtime/compile/code_errors.h"
#include "runtime/compile/compile_log.h"
#include "runtime/compile/nvrtc_library.h"
#include "runtime/nvtx.h"

namespace attnforge {
namespace {

constexpr std::size_t kMaxErrorBytes = 4000;
constexpr int kMaxStaticSmemBytes = 48 * 1024;  // of every arch; NVRTC 12 does not check it
// NVRTC 12 versions differ from 13 ones in what else they accept; these are looked up one by one.
// Symbols of internal linkage carry a random number unless the seed is fixed.
constexpr const char* kSeedOption = "--frandom-seed=attnforge";
// NVRTC's own compile cache on disk gives back machine code without the assembler's remarks, which
// registers and spills are read from, and it initialises CUDA, after which no process that is
// forked can use a GPU. attnforge has a cache of its own.
constexpr const char* kNoCacheOption = "--no-cache";

/// One compile: the handle and the texts read from it.
class Program {
 public:
  Program(const Nvrtc& nvrtc, const std::string& text, const std::string& file) : nvrtc_(nvrtc) {
    const nvrtcResult result = nvrtc_.nvrtcCreateProgram(&program_, text.c_str(), file.c_str(), 0,
                                                         nullptr, nullptr);
    if (result != NVRTC_SUCCESS)
      throw_error(ErrorCode::kCompile, "NVRTC could not start to compile {} ({} bytes): {}", file,
                  text.size(), nvrtc_.nvrtcGetErrorString(result));
  }
  ~Program() { nvrtc_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void stop_when(const std::atomic<bool>* unwanted) {
    if (unwanted == nullptr || nvrtc_.nvrtcSetFlowCallback == nullptr) return;
    const auto ask = [](void* flag, void*) -> int {
      return static_cast<const std::atomic<bool>*>(flag)->load() ? 1 : 0;
    };
    // Without it the compile runs to its end.
    nvrtc_.nvrtcSetFlowCallback(program_, ask, const_cast<std::atomic<bool>*>(unwanted));
  }

  nvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> words;
    words.reserve(options.size());
    for (const std::string& option : options) words.push_back(option.c_str());
    return nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(words.size()), words.data());
  }

  std::string log() const {
    std::string text = output(nvrtc_.nvrtcGetProgramLogSize, nvrtc_.nvrtcGetProgramLog);
    // Each part of the log ends in a zero: one assembler error may stand after the first of them.
    std::erase(text, '\0');
    return text;
  }
  std::string ptx() const {
    std::string text = output(nvrtc_.nvrtcGetPTXSize, nvrtc_.nvrtcGetPTX);
    std::erase(text, '\0');  // at its end
    return text;
  }
  std::vector<std::byte> cubin() const {
    const std::string bytes = output(nvrtc_.nvrtcGetCUBINSize, nvrtc_.nvrtcGetCUBIN);
    const auto view = std::as_bytes(std::span(bytes));
    return {view.begin(), view.end()};
  }

 private:
  /// Empty if there is none.
  std::string output(nvrtcResult (*size_of)(nvrtcProgram, std::size_t*),
                     nvrtcResult (*read)(nvrtcProgram, char*)) const {
    std::size_t size = 0;
    if (size_of(program_, &size) != NVRTC_SUCCESS) return "";
    std::string text(size, '\0');
    return read(program_, text.data()) == NVRTC_SUCCESS ? text : "";
  }

  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

/// The opened library, its facts, and which optional options it accepts.
struct Compiler {
  NvrtcLibrary library;
  NvrtcFacts facts;
  bool accepts_seed = false;
  bool accepts_no_cache = false;

  Compiler() : library(open_nvrtc(nvrtc_search())) {
    facts.path = library.path;
    facts.major = library.major;
    facts.minor = library.minor;
    facts.problem = library.problem;
    if (!facts.problem.empty()) return;
    int count = 0;
    if (library.functions.nvrtcGetNumSupportedArchs(&count) == NVRTC_SUCCESS && count > 0) {
      facts.archs.resize(static_cast<std::size_t>(count));
      if (library.functions.nvrtcGetSupportedArchs(facts.archs.data()) != NVRTC_SUCCESS)
        facts.archs.clear();
    }
    try {
      accepts_seed = accepts(kSeedOption);
      accepts_no_cache = accepts(kNoCacheOption);
      compile_empty();
    } catch (const std::exception& error) {
      facts.problem = error.what();
    }
    facts.available = facts.problem.empty();
  }

  /// Asked together with an option that none accepts, so that nothing is compiled: the log names
  /// those it does not know.
  bool accepts(const std::string& option) const {
    Program program(library.functions, "", "options.cu");
    program.compile({option, "--attnforge-asks-which-options-are-known"});
    const std::string name = option.substr(0, option.find('='));
    return program.log().find(name) == std::string::npos;
  }

  /// Proves that the library works (its builtins are found) and reads the build id.
  void compile_empty() {
    Program program(library.functions, "", "empty.cu");
    std::vector<std::string> options = {"-arch=compute_80"};
    if (accepts_no_cache) options.push_back(kNoCacheOption);
    const nvrtcResult result = program.compile(options);
    if (result == NVRTC_SUCCESS) {
      facts.build = build_id_of_ptx(program.ptx());
      return;
    }
    facts.problem = fmt::format(
        "NVRTC {}.{} ({}) cannot compile an empty source: {}. {}Its libnvrtc-builtins.so must lie "
        "beside it and be of the same "
        "version: install it again or set ATTNFORGE_NVRTC to another libnvrtc.so",
        facts.major, facts.minor, facts.path, library.functions.nvrtcGetErrorString(result),
        program.log());
  }
};

const Compiler& compiler() {
  static const Compiler instance;
  return instance;
}

/// Throws Error(kNoDriver) unless NVRTC can compile for `arch`.
const Compiler& compiler_for(const Arch& arch) {
  const Compiler& instance = compiler();
  const NvrtcFacts& facts = instance.facts;
  if (!facts.available) throw Error(ErrorCode::kNoDriver, facts.problem);
  if (arch.name.empty() ||
      std::find(facts.archs.begin(), facts.archs.end(), arch.sm) == facts.archs.end())
    throw_error(ErrorCode::kNoDriver,
                "NVRTC {} ({}) does not know sm_{}; it knows sm {}. Set ATTNFORGE_NVRTC to that of "
                "another CUDA version, or compile for one of these",
                facts.version_text(), facts.path,
                arch.name.empty() ? std::to_string(arch.sm) : std::string(arch.name),
                fmt::join(facts.archs, ", "));
  return instance;
}

void run_compile(const Compiler& instance, Program& program, const Source& source,
                 const std::string& arch, const CompileOptions& how) {
  std::vector<std::string> options = {"-arch=" + arch, "--std=c++20"};
  if (instance.accepts_seed) options.push_back(kSeedOption);
  if (instance.accepts_no_cache) options.push_back(kNoCacheOption);
  options.insert(options.end(), source.options.begin(), source.options.end());
  if (arch.starts_with("sm_")) options.push_back("--ptxas-options=-v");
  if (how.line_info) options.push_back("-lineinfo");
  program.stop_when(how.unwanted);
  const nvrtcResult result = program.compile(options);
  if (result == NVRTC_SUCCESS) return;
  const std::string log = program.log();
  if (const std::string in_code = errors_in_code(log, kMaxErrorBytes); !in_code.empty()) {
    throw_error(ErrorCode::kCompile, "the problem's code does not compile (NVRTC {}, {}):\n{}",
                instance.facts.version_text(), source.name, in_code);
  }
  throw_error(ErrorCode::kCompile, "NVRTC {} refused {} (options {}): {}\n{}",
              instance.facts.version_text(), source.name, fmt::join(options, " "),
              instance.library.functions.nvrtcGetErrorString(result),
              first_errors(log, kMaxErrorBytes));
}

}  // namespace

std::string NvrtcFacts::version_text() const {
  return fmt::format("{}.{}{}{}", major, minor, build.empty() ? "" : " ", build);
}

const NvrtcFacts& nvrtc_facts() { return compiler().facts; }

Cubin compile(const Source& source, const Arch& arch, const CompileOptions& options) {
  const NvtxRange range("attnforge compile", source.name);
  const Compiler& instance = compiler_for(arch);
  const auto start = std::chrono::steady_clock::now();
  Program program(instance.library.functions, source.text, source.name + ".cu");
  run_compile(instance, program, source, fmt::format("sm_{}", arch.name), options);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() -
                                                            start;

  const std::string text = program.log();
  const CompileLog log = read_compile_log(text);
  Cubin cubin;
  cubin.bytes = program.cubin();
  if (cubin.bytes.empty() || !log.has_resources)
    throw_error(ErrorCode::kCompile,
                "NVRTC {} compiled {} for sm_{} but gave {}; does the source have a __global__ "
                "function?\n{}",
                instance.facts.version_text(), source.name, arch.name,
                cubin.bytes.empty() ? "no machine code" : "no kernel's registers",
                text.substr(0, kMaxErrorBytes));
  if (log.smem_static_bytes > kMaxStaticSmemBytes)
    throw_error(ErrorCode::kCompile,
                "{} has {} bytes of static shared memory; sm_{} allows {}, more must be dynamic",
                source.name, log.smem_static_bytes, arch.name, kMaxStaticSmemBytes);
  cubin.arch = arch.name;
  cubin.source_digest = digest(source);
  cubin.nvrtc = instance.facts.version_text();
  static_cast<KernelResources&>(cubin) = log;
  cubin.kernels = log.kernels;
  cubin.compile_ms = elapsed.count();
  cubin.log = log.remarks;
  return cubin;
}

std::string compile_to_ptx(const Source& source, const Arch& arch, const CompileOptions& options) {
  const Compiler& instance = compiler_for(arch);
  Program program(instance.library.functions, source.text, source.name + ".cu");
  run_compile(instance, program, source, fmt::format("compute_{}", arch.name), options);
  std::string ptx = program.ptx();
  if (ptx.empty())
    throw_error(ErrorCode::kCompile, "NVRTC {} gave no PTX for {} on sm_{}",
                instance.facts.version_text(), source.name, arch.name);
  return ptx;
}

}  // namespace attnforge
