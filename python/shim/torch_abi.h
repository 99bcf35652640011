// torch_abi.h - the functions of torch's stable C ABI (torch 2.10 and later) that the shim calls,
// found in the process that has loaded torch: no header and no library of torch is needed to build.
#pragma once
#include <cstddef>
#include <cstdint>

namespace attnforge_torch {

using Value = uint64_t;  // StableIValue: a number, or a handle that whoever receives it owns
using Tensor = void*;    // AtenTensorHandle
using Kernel = void (*)(Value* stack, uint64_t num_arguments, uint64_t num_results);

/// 2.10.0: the version that calls of torch_call_dispatcher are written for.
constexpr uint64_t kVersion = uint64_t{2} << 56 | uint64_t{10} << 48;

// X(name, result, arguments): a member of Abi and the symbol it is found by. Those that return
// int32_t return 0 if all is well.
#define ATTNFORGE_TORCH_FUNCTIONS(X)                                                       \
  X(aoti_torch_library_init_impl, int32_t,                                                 \
    (const char* space, const char* key, const char* file, uint32_t line, void** library)) \
  X(torch_library_impl, int32_t,                                                           \
    (void* library, const char* name, Kernel kernel, uint64_t version))                    \
  X(torch_call_dispatcher, int32_t,                                                        \
    (const char* name, const char* overload, Value* stack, uint64_t version))              \
  X(aoti_torch_get_data_ptr, int32_t, (Tensor, void**))                                    \
  X(aoti_torch_get_dim, int32_t, (Tensor, int64_t*))                                       \
  X(aoti_torch_get_sizes, int32_t, (Tensor, int64_t**))                                    \
  X(aoti_torch_get_strides, int32_t, (Tensor, int64_t**))                                  \
  X(aoti_torch_get_dtype, int32_t, (Tensor, int32_t*))                                     \
  X(aoti_torch_get_device_type, int32_t, (Tensor, int32_t*))                               \
  X(aoti_torch_get_device_index, int32_t, (Tensor, int32_t*))                              \
  X(aoti_torch_empty_strided, int32_t,                                                     \
    (int64_t dim, const int64_t* sizes, const int64_t* strides, int32_t dtype,             \
     int32_t device_type, int32_t device, Tensor*))                                        \
  X(aoti_torch_zero_, int32_t, (Tensor))                                                   \
  X(aoti_torch_grad_mode_is_enabled, bool, ())                                             \
  X(aoti_torch_delete_tensor_object, int32_t, (Tensor))                                    \
  X(aoti_torch_device_type_cuda, int32_t, ())                                              \
  X(aoti_torch_dtype_uint8, int32_t, ())                                                   \
  X(torch_list_size, int32_t, (void* list, size_t*))                                       \
  X(torch_list_get_item, int32_t, (void* list, size_t index, Value*))                      \
  X(torch_list_push_back, int32_t, (void* list, Value))                                    \
  X(torch_new_list_reserve_size, int32_t, (size_t, void** list))                           \
  X(torch_delete_list, int32_t, (void* list))                                              \
  X(torch_string_length, int32_t, (void* string, size_t*))                                 \
  X(torch_string_c_str, int32_t, (void* string, const char**))                             \
  X(torch_delete_string, int32_t, (void* string))

struct Abi {
#define ATTNFORGE_TORCH_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  ATTNFORGE_TORCH_FUNCTIONS(ATTNFORGE_TORCH_MEMBER)
#undef ATTNFORGE_TORCH_MEMBER
  int32_t (*current_stream)(int32_t device, void** stream) = nullptr;
  // Not of the stable ABI, which has none to ask: at::globalContext() and
  // at::Context::deterministicAlgorithms().
  const void* (*global_context)() = nullptr;
  bool (*deterministic)(const void* context) = nullptr;
  // THPVariable_Wrap(): a new object of Python of a tensor. Null where torch does not have it.
  void* (*wrap)(const void* tensor) = nullptr;
  // std::__throw_runtime_error of the libstdc++ that torch has; this library may have one of its
  // own inside.
  void (*throw_error)(const char* text) = nullptr;
};

/// Null and a filled `abi`, or the name of what the process does not have. on_gpu: streams are
/// asked for.
const char* find_abi(bool on_gpu, Abi& abi);

}  // namespace attnforge_torch
