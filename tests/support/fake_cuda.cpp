// fake_cuda.cpp - finds the fake driver's own functions.
#include "tests/support/fake_cuda.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace attnforge::test {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw std::runtime_error(std::string("libcuda.so.1 is not the fake driver: no ") + name);
  }
}

FakeCuda open_fake() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  FakeCuda fake{};
  find(library, "fake_reset", fake.reset);
  find(library, "fake_inits", fake.inits);
  find(library, "fake_loads", fake.loads);
  find(library, "fake_unloads", fake.unloads);
  find(library, "fake_launches", fake.launches);
  find(library, "fake_watch", fake.watch);
  find(library, "fake_last_argument", fake.last_argument);
  find(library, "fake_device_bytes", fake.device_bytes);
  find(library, "fake_slow_copies", fake.slow_copies);
  find(library, "fake_last_context", fake.last_context);
  find(library, "fake_last_stream", fake.last_stream);
  find(library, "fake_last_grid_x", fake.last_grid_x);
  find(library, "fake_overlapping_launches", fake.overlapping_launches);
  find(library, "fake_fail_loads", fake.fail_loads);
  find(library, "fake_other_context", fake.other_context);
  find(library, "fake_encodes", fake.encodes);
  find(library, "fake_encode", fake.encode);
  return fake;
}

}  // namespace

const FakeCuda& fake_cuda() {
  static const FakeCuda fake = open_fake();
  return fake;
}

}  // namespace attnforge::test
