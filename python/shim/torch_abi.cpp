#include "torch_abi.h"

#include <dlfcn.h>

#include <initializer_list>

namespace attnforge_torch {
namespace {

// Libraries of torch are loaded for themselves, not for the whole process.
void* symbol(const char* name) {
  for (const char* library :
       {"libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so", "libstdc++.so.6"}) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* found = dlsym(handle, name);
    dlclose(handle);  // torch keeps it
    if (found != nullptr) return found;
  }
  return nullptr;
}

template <typename Function>
bool find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(symbol(name));
  return function != nullptr;
}

}  // namespace

const char* find_abi(bool on_gpu, Abi& abi) {
#define ATTNFORGE_TORCH_FIND(name, result, arguments) \
  if (!find(#name, abi.name)) return #name;
  ATTNFORGE_TORCH_FUNCTIONS(ATTNFORGE_TORCH_FIND)
#undef ATTNFORGE_TORCH_FIND
  if (on_gpu && !find("aoti_torch_get_current_cuda_stream", abi.current_stream))
    return "aoti_torch_get_current_cuda_stream";
  if (!find("_ZN2at13globalContextEv", abi.global_context)) return "at::globalContext";
  if (!find("_ZNK2at7Context23deterministicAlgorithmsEv", abi.deterministic))
    return "at::Context::deterministicAlgorithms";
  find("_Z16THPVariable_WrapRKN2at10TensorBaseE", abi.wrap);
  if (!find("_ZSt21__throw_runtime_errorPKc", abi.throw_error)) return "std::__throw_runtime_error";
  return nullptr;
}

}  // namespace attnforge_torch
