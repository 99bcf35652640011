// count_allocations.cpp - operator new and delete that count. The nothrow new too: std::stable_sort
// pairs it with this delete, and a sanitizer's own would not fit.
#include "count_allocations.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> count = 0, live = 0;

long bytes_of(void* memory) {
  return static_cast<long>(malloc_usable_size(memory) + sizeof(std::size_t));
}
}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory != nullptr) live += bytes_of(memory);
  return memory;
}
void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) live -= bytes_of(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

long attnforge::test::allocations() { return count; }
long attnforge::test::live_bytes() { return live; }
