#include "launch.h"

#include <algorithm>
#include <cstring>

namespace attnforge_torch {

Abi abi;
Run library_run;
Clear library_clear;
Plans plans;
std::atomic<uint64_t> runs;
bool (*is_plain)(Tensor);

void add_tensor(Call& call, Tensor tensor, RowsOf rows) {
  int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
  int32_t dtype = 0, device_type = 0, device = 0;
  void* data = nullptr;
  if (call.num_tensors == call.tensors.size() || abi.aoti_torch_get_dim(tensor, &dim) ||
      abi.aoti_torch_get_sizes(tensor, &sizes) || abi.aoti_torch_get_strides(tensor, &strides) ||
      abi.aoti_torch_get_dtype(tensor, &dtype) ||
      abi.aoti_torch_get_device_type(tensor, &device_type) ||
      abi.aoti_torch_get_device_index(tensor, &device) ||
      abi.aoti_torch_get_data_ptr(tensor, &data) || data == nullptr) {
    call.plain = false;
    return;
  }
  if (call.num_tensors == 0) {
    call.device_type = device_type;
    call.device = device;
  }
  call.plain &= call.device_type == device_type && call.device == device;
  const auto address = reinterpret_cast<uint64_t>(data);
  // Each tensor's own alignment: a plan follows from that of some of them.
  call.key.add(dim << 40 | static_cast<int64_t>(address & 15) << 32 | dtype);
  // Of packed tensors the place of rows is the first, of lse the last, and the stride before that.
  constexpr int64_t kRows = INT64_MIN;  // no size, and no stride
  const int64_t own = rows == kNoRows ? -1 : call.packed_rows[rows];
  const bool is_lse = own >= 0 && dim == 2, is_packed = own >= 0 && dim == 3;
  for (int64_t i = 0; i < dim; ++i) {
    const bool is_rows = (is_packed && i == 0) || (is_lse && i == 1);
    call.key.add(is_rows && sizes[i] == own ? kRows : sizes[i]);
  }
  for (int64_t i = 0; i < dim; ++i)
    call.key.add(is_lse && i == 0 && strides[i] == own ? kRows : strides[i]);
  call.addresses[call.num_tensors] = address;
  call.tensors[call.num_tensors++] = tensor;
}

bool read_outputs(const Call& made, Recipe& recipe) {
  if (!made.plain || made.num_tensors > kMostOutputs) return false;
  for (size_t i = 0; i < made.num_tensors; ++i) {
    int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
    Output& each = recipe.outputs.emplace_back();
    const bool read = !abi.aoti_torch_get_dim(made.tensors[i], &dim) &&
                      !abi.aoti_torch_get_sizes(made.tensors[i], &sizes) &&
                      !abi.aoti_torch_get_strides(made.tensors[i], &strides) &&
                      !abi.aoti_torch_get_dtype(made.tensors[i], &each.dtype);
    if (!read) return false;
    each.sizes.assign(sizes, sizes + dim);
    each.strides.assign(strides, strides + dim);
  }
  for (const int64_t i : recipe.zeros) {
    if (i < 0 || i >= static_cast<int64_t>(made.num_tensors)) return false;
    recipe.outputs[static_cast<size_t>(i)].zeros = true;
  }
  return true;
}

namespace {

/// Whether outputs may share memory with other tensors.
bool is_close(const Recipe& recipe, const Call& call) {
  for (const auto& [output, other, below, above] : recipe.pairs) {
    const auto apart = static_cast<int64_t>(call.addresses[output] - call.addresses[other]);
    if (below < apart && apart < above) return true;
  }
  return false;
}

bool allocate(const Output& output, const Call& call, Tensors& made, uint64_t& address) {
  Tensor tensor = nullptr;
  void* data = nullptr;
  const int64_t *sizes = output.sizes.data(), *strides = output.strides.data();
  std::array<int64_t, 3> own_sizes, own_strides;
  if (output.rows != kNoRows) {
    const bool is_lse = output.sizes.size() == 2;
    std::copy(output.sizes.begin(), output.sizes.end(), own_sizes.begin());
    std::copy(output.strides.begin(), output.strides.end(), own_strides.begin());
    own_sizes[is_lse ? 1 : 0] = call.packed_rows[output.rows];
    if (is_lse) own_strides[0] = call.packed_rows[output.rows];
    sizes = own_sizes.data();
    strides = own_strides.data();
  }
  if (abi.aoti_torch_empty_strided(static_cast<int64_t>(output.sizes.size()), sizes, strides,
                                   output.dtype, call.device_type, call.device, &tensor))
    return false;
  made.all.push_back(tensor);
  if (is_plain != nullptr && !is_plain(tensor))
    return false;  // a mode or transform of torch made it
  if (output.zeros && abi.aoti_torch_zero_(tensor)) return false;
  if (abi.aoti_torch_get_data_ptr(tensor, &data) || data == nullptr) return false;
  address = reinterpret_cast<uint64_t>(data);
  return true;
}

}  // namespace

bool launch(const Plans::Known& known, Call& call, Tensors& outputs) {
  const Recipe& recipe = *known.recipe;
  if (is_close(recipe, call)) return false;
  outputs.all.reserve(recipe.outputs.size());
  size_t next = call.num_tensors;
  for (const Output& each : recipe.outputs)
    if (!allocate(each, call, outputs, call.addresses[next++])) return false;
  alignas(8) char bytes[kMostBytes];
  std::memcpy(bytes, recipe.bytes.data(), recipe.bytes.size());
  for (const auto& [source, at, more] : recipe.pointers) {
    const char* const inside = bytes + source;
    std::memcpy(bytes + at, &inside, sizeof inside);
  }
  for (const auto& [source, at, more] : recipe.addresses) {
    const uint64_t address = call.addresses[source] + static_cast<uint64_t>(more);
    std::memcpy(bytes + at, &address, 8);
  }
  for (const auto& [of, at, most] : recipe.rows) {
    const int64_t rows = std::min(call.packed_rows[of], most);
    std::memcpy(bytes + at, &rows, 8);
  }
  void* stream = nullptr;
  if (call.device_type == abi.aoti_torch_device_type_cuda() &&
      abi.current_stream(call.device, &stream))
    return false;
  Tensors scratch;  // torch frees it in the stream's order
  uint64_t workspace = 0;
  if (recipe.workspace_bytes > 0) {
    const Output memory{{recipe.workspace_bytes + 255}, {1}, abi.aoti_torch_dtype_uint8()};
    if (!allocate(memory, call, scratch, workspace)) return false;
    workspace = (workspace + 255) & ~uint64_t{255};
  }
  return plans.run(known.epoch, [&] {
    if (recipe.num_rests > 0 &&
        library_clear(reinterpret_cast<void*>(recipe.context), bytes + recipe.rest,
                      static_cast<size_t>(recipe.num_rests), stream) != 0)
      return false;
    return library_run(recipe.plan, bytes, reinterpret_cast<void*>(workspace),
                       static_cast<size_t>(recipe.workspace_bytes), stream) == 0;
  });
}

}  // namespace attnforge_torch
