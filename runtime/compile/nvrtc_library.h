// nvrtc_library.h - finds and opens libnvrtc at run time.
#pragma once

#include <nvrtc.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnforge {

// NVRTC's functions that attnforge calls. Their signatures are the same from 12.4 to 13.
#define ATTNFORGE_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)                    \
  X(nvrtcGetErrorString)             \
  X(nvrtcGetNumSupportedArchs)       \
  X(nvrtcGetSupportedArchs)          \
  X(nvrtcCreateProgram)              \
  X(nvrtcDestroyProgram)             \
  X(nvrtcCompileProgram)             \
  X(nvrtcGetProgramLogSize)          \
  X(nvrtcGetProgramLog)              \
  X(nvrtcGetCUBINSize)               \
  X(nvrtcGetCUBIN)                   \
  X(nvrtcGetPTXSize)                 \
  X(nvrtcGetPTX)

struct Nvrtc {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of what is declared
#define ATTNFORGE_NVRTC_POINTER(name) decltype(&::name) name = nullptr;
  ATTNFORGE_NVRTC_FUNCTIONS(ATTNFORGE_NVRTC_POINTER)
#undef ATTNFORGE_NVRTC_POINTER
  // Newer ones only; null where it is missing. Declared here, since older headers do not have it.
  nvrtcResult (*nvrtcSetFlowCallback)(nvrtcProgram program, int (*cancel)(void* payload, void*),
                                      void* payload) = nullptr;
};

/// Where to look, best first.
struct NvrtcSearch {
  std::optional<std::string> named;  // $ATTNFORGE_NVRTC: this library and no other
  std::vector<std::string> places;   // names for the loader, or full paths
};

/// The search of this process. `environment` gives the value of a variable, nullptr if unset; it is
/// a parameter for tests.
NvrtcSearch nvrtc_search(const std::function<const char*(const char*)>& environment =
                             [](const char* name) { return secure_getenv(name); });

/// Folder of the file that this code was loaded from: libattnforge.so, or the program it is linked
/// into.
std::string own_folder();

/// The folders of a list such as $PATH.
std::vector<std::string> folders_of(std::string_view list);

/// An opened library, or why there is none. It stays open until the process ends.
struct NvrtcLibrary {
  Nvrtc functions;
  std::string path;  // full path of the file in use
  int major = 0, minor = 0;
  std::string problem;  // not "": nothing usable was found; what was tried and what to do
};
NvrtcLibrary open_nvrtc(const NvrtcSearch& search);

}  // namespace attnforge
