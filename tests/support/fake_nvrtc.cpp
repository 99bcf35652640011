// fake_nvrtc.cpp - a libnvrtc that compiles nothing: after $FAKE_NVRTC_COMPILE_MS it gives a file
// of a few bytes that differs from source to source. Programs are told of it by ATTNFORGE_NVRTC.
// $FAKE_FAULTS gives configs a fault each, "FAULT=CONFIG;FAULT=CONFIG": compile_error,
// compile_crash, compile_hang (for a minute), compile_memory, or one that the code has when it is
// loaded or launched (fake_gpu.h).
#include <nvrtc.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

namespace {

struct Program {
  std::string source;
  std::string cubin;
};
constexpr int kArchs[] = {80, 86, 89, 90, 100, 120};
constexpr char kLog[] =
    "ptxas info    : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 64 registers\n";
constexpr char kPtx[] = ".visible .entry fake()\n{\n\t.loc\t1 3 0\n\tret;\n}\n";

/// "" for most.
std::string fault_of(const std::string& source) {
  constexpr char kMark[] = "// generated: ";
  const std::size_t mark = source.find(kMark);
  const char* const faults = std::getenv("FAKE_FAULTS");
  if (faults == nullptr || mark == std::string::npos) return "";
  const std::size_t begin = mark + sizeof(kMark) - 1;
  const std::string entry = "=" + source.substr(begin, source.find('\n', begin) - begin) + ";";
  const std::string all = ";" + std::string(faults) + ";";
  const std::size_t at = all.find(entry);
  if (at == std::string::npos) return "";
  const std::size_t name = all.rfind(';', at) + 1;
  return all.substr(name, at - name);
}

nvrtcResult compile_fault(const std::string& fault) {
  if (fault == "compile_error") return NVRTC_ERROR_COMPILATION;
  if (fault == "compile_crash") std::raise(SIGSEGV);
  if (fault == "compile_hang") std::this_thread::sleep_for(std::chrono::minutes(1));
  if (fault == "compile_memory") {
    void* const memory = std::malloc(std::size_t{16} << 30);
    std::free(memory);
    if (memory == nullptr) return NVRTC_ERROR_OUT_OF_MEMORY;
  }
  return NVRTC_SUCCESS;
}

Program& of(nvrtcProgram program) { return *reinterpret_cast<Program*>(program); }

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(nvrtcResult) { return "fake"; }
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(kArchs));
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  std::copy(std::begin(kArchs), std::end(kArchs), archs);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int,
                               const char* const*, const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(new Program{source, ""});
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete &of(*program);
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  const std::string& source = of(program).source;
  const char* const ms = std::getenv("FAKE_NVRTC_COMPILE_MS");
  if (!source.empty() && ms != nullptr)
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(ms)));
  const std::string fault = fault_of(source);
  if (const nvrtcResult failed = compile_fault(fault); failed != NVRTC_SUCCESS) return failed;
  of(program).cubin = "\177ELF " + (fault.empty() ? "" : "fault=" + fault + " ") +
                      std::to_string(std::hash<std::string>{}(source));
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t* size) {
  *size = sizeof(kLog);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* log) {
  std::memcpy(log, kLog, sizeof(kLog));
  return NVRTC_SUCCESS;
}
// With the zero at its end: the fake driver takes the code for a text.
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  *size = of(program).cubin.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  std::memcpy(cubin, of(program).cubin.c_str(), of(program).cubin.size() + 1);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram, std::size_t* size) {
  *size = sizeof(kPtx);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram, char* ptx) {
  std::memcpy(ptx, kPtx, sizeof(kPtx));
  return NVRTC_SUCCESS;
}

}  // extern "C"
