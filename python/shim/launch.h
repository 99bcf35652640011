// launch.h - a call of torch's tensors like an earlier one: its arguments as a key, and its run by
// a recipe.
#pragma once
#include <array>
#include <atomic>
#include <vector>

#include "plans.h"
#include "torch_abi.h"

namespace attnforge_torch {

using Run = int32_t (*)(void* plan, const void* tensors, void* workspace, size_t workspace_bytes,
                        void* stream);

using Clear = int32_t (*)(void* context, const void* rests, size_t count, void* stream);

extern Abi abi;
extern Run library_run;
extern Clear library_clear;
extern Plans plans;
extern std::atomic<uint64_t> runs;  // without Python
extern bool (*is_plain)(Tensor);    // whether memory may be asked for, where that is known

// Owners of what torch hands over.
struct Tensors {
  std::vector<Tensor> all;
  ~Tensors() {
    for (Tensor each : all) abi.aoti_torch_delete_tensor_object(each);
  }
};

/// A call's arguments, read and not owned.
struct Call {
  Key key;
  std::array<Tensor, kMostTensors> tensors;
  size_t num_tensors = 0;
  uint64_t addresses[kMostTensors + kMostOutputs];  // and those of outputs
  int32_t device_type = 0, device = 0;
  int64_t packed_rows[2] = {-1, -1};  // by RowsOf, of packed tensors
  bool plain = true;                  // one that may be known
};

/// rows: those that the tensor may have in common with others, and the key then does not say.
void add_tensor(Call& call, Tensor tensor, RowsOf rows = kNoRows);

/// The layouts of outputs, which are the tensors of `made`; false where they cannot be read, or are
/// not those that the recipe says.
bool read_outputs(const Call& made, Recipe& recipe);

/// Runs a call, with new outputs; false where Python has to say why not.
bool launch(const Plans::Known& known, Call& call, Tensors& outputs);

}  // namespace attnforge_torch
