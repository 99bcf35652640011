// fake_profiler.cpp - what a profiler injects into a process: prints every NVTX range it is told
// of.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

int NVTX_API push(const char* name) {
  std::printf("push %s\n", name);
  return 0;
}

int NVTX_API pop() {
  std::printf("pop\n");
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
