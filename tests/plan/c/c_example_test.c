/* c_example_test.c - the example that opens c.h, as it is printed there: cut out at configure time.
 */
#include "c_example.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 4096 * 32 * 128 * 2 }; /* of q and o; k and v take less */

/* Device memory: where there is no GPU, addresses that nobody follows. */
static void* allocated(void* library, int fake, size_t bytes) {
  static uintptr_t next_fake = 0x1000000;
  int (*allocate)(unsigned long long*, size_t) = NULL;
  unsigned long long address = 0;
  void* symbol;
  if (bytes == 0) return NULL;
  if (fake) {
    next_fake += 0x10000000;
    return (void*)next_fake;
  }
  symbol = dlsym(library, "cuMemAlloc_v2");
  if (symbol == NULL) return NULL;
  memcpy(&allocate, &symbol, sizeof symbol);
  return allocate(&address, bytes) == 0 ? (void*)(uintptr_t)address : NULL;
}

static int primary_context(void* library) {
  int (*retain)(void**, int) = NULL;
  int (*make_current)(void*) = NULL;
  void* context = NULL;
  void* symbol = dlsym(library, "cuDevicePrimaryCtxRetain");
  if (symbol == NULL) return 0;
  memcpy(&retain, &symbol, sizeof symbol);
  symbol = dlsym(library, "cuCtxSetCurrent");
  if (symbol == NULL) return 0;
  memcpy(&make_current, &symbol, sizeof symbol);
  return retain(&context, 0) == 0 && make_current(context) == 0;
}

static int synchronized(void* library) {
  int (*synchronize)(void) = NULL;
  void* symbol = dlsym(library, "cuCtxSynchronize");
  if (symbol == NULL) return 0;
  memcpy(&synchronize, &symbol, sizeof symbol);
  return synchronize() == 0;
}

int main(int argc, char** argv) {
  const int fake = argc > 1 && strcmp(argv[1], "fake") == 0;
  struct engine e;
  void* library = NULL;
  int ok;
  if (!fake) {
    int (*init)(unsigned) = NULL;
    void* symbol;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    symbol = library != NULL ? dlsym(library, "cuInit") : NULL;
    if (symbol == NULL) return 77; /* skipped: no driver */
    memcpy(&init, &symbol, sizeof symbol);
    if (init(0) != 0 || !primary_context(library)) return 77;
  }
  if (!begin(&e)) return 1;
  ok = attend(&e, allocated(library, fake, kBytes), allocated(library, fake, kBytes),
              allocated(library, fake, kBytes), allocated(library, fake, kBytes),
              allocated(library, fake, e.workspace_bytes), NULL);
  ok = ok && (fake || synchronized(library));
  end(&e);
  puts(ok ? "ok" : "failed");
  return ok ? 0 : 1;
}
