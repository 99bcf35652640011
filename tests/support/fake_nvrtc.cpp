// fake_nvrtc.cpp - a libnvrtc that compiles nothing: after $FAKE_NVRTC_COMPILE_MS it gives a file
// of a few bytes that differs from source to source. Programs are told of it by ATTNFORGE_NVRTC.
#include <nvrtc.h>

#include <algorithm>
#include <chrono>
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
  of(program).cubin = "\177ELF " + std::to_string(std::hash<std::string>{}(source));
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
