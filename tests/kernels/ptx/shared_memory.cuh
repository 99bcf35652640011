// shared_memory.cuh - templates/ptx/shared_memory.cuh on the host: an address is an offset in the
// block's. A slow warp reads late: what others may write over by then is found.
#pragma once

#include "base.cuh"

namespace attnforge {

inline u32 smem_address(const void*) { return 0; }
inline void store_shared(u32 address, int value) { test::own_sm().store(address, value); }
inline int load_shared(u32 address) {
  test::dawdle();
  return test::own_sm().load<int>(address);
}
template <class T, int kCount>
void store_shared_array(u32 address, const T (&x)[kCount]) {
  for (int i = 0; i < kCount; ++i) test::own_sm().store(address + static_cast<u32>(i) * 4, x[i]);
}
template <class T, int kCount>
void load_shared_array(T (&x)[kCount], u32 address) {
  test::dawdle();
  for (int i = 0; i < kCount; ++i) x[i] = test::own_sm().load<T>(address + static_cast<u32>(i) * 4);
}
template <int kFloats>
void store_shared(u32 address, const float (&x)[kFloats]) {
  store_shared_array(address, x);
}
inline void store_shared_8(u32 address, u32 low, u32 high) {
  const u32 both[2] = {low, high};
  store_shared_array(address, both);
}
inline void load_shared_8(u32& low, u32& high, u32 address) {
  test::dawdle();
  low = test::own_sm().load<u32>(address);
  high = test::own_sm().load<u32>(address + 4);
}
inline void store_shared_16(u32 address, const u32 (&words)[4]) {
  store_shared_array(address, words);
}
inline void load_shared_16(u32 (&words)[4], u32 address) { load_shared_array(words, address); }

template <int kFloats>
void load_shared(float (&x)[kFloats], u32 address) {
  load_shared_array(x, address);
}

}  // namespace attnforge
