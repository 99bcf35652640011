// torch_shim.cpp - ops of attnforge for torch without a step of Python: a call like an earlier one
// is a look-up, the allocation of its outputs and one attnforge_run(). Every other call, and
// whatever fails, goes on to the op of Python's, which has the rules, the errors and the plans, and
// says how the next call like it runs (attnforge_torch_remember).
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "launch.h"

#define ATTNFORGE_TORCH_API extern "C" __attribute__((visibility("default")))

namespace attnforge_torch {
namespace {

struct Op {
  const char* name;
  const char* cold;       // the same op, of Python's
  const char* arguments;  // each one letter: t a tensor, T a list of them, with ? an optional one;
                          // s a text, b a bool, i a number; I and B lists
  const char* results;    // t or T as well
  bool may_differ;        // between equal runs, which torch.use_deterministic_algorithms() forbids
};

constexpr Op kOps[] = {
    {"run_forward", "attnforge::run_forward_cold", "tttTIs", "tt", false},
    {"decode", "attnforge::decode_cold", "tttTIs", "t", false},
    {"forward_out", "attnforge::forward_out_cold", "tttTIst?t", "", false},
    {"run_backward", "attnforge::run_backward_cold", "ttttt?t?tTIsB", "T", true},
};

// Of the cold call that this thread is in, what Python says of it.
struct Cold {
  bool known = false;
  Recipe recipe;
  uint64_t epoch = 0;
  std::string failure;
};
thread_local Cold* cold;

void add_list(Call& call, char kind, void* list) {
  size_t size = 0;
  call.plain &= abi.torch_list_size(list, &size) == 0;
  call.key.add(static_cast<int64_t>(size));
  for (size_t i = 0; i < size; ++i) {
    Value item = 0;
    if (abi.torch_list_get_item(list, i, &item)) {
      call.plain = false;
    } else if (kind == 'T') {
      add_tensor(call, reinterpret_cast<Tensor>(item));
    } else {
      call.key.add(static_cast<int64_t>(item));
    }
  }
}

void read(const Op& op, const Value* stack, Call& call) {
  call.key.add(&op - kOps);
  for (const char* kind = op.arguments; *kind != 0 && call.plain; ++kind) {
    Value value = *stack++;
    if (*kind == '?') {
      call.key.add(value == 0 ? 0 : 1);
      ++kind;
      if (value == 0) continue;
      value = *reinterpret_cast<const Value*>(value);
    }
    switch (*kind) {
      case 't':
        add_tensor(call, reinterpret_cast<Tensor>(value));
        break;
      case 'T':
      case 'I':
      case 'B':
        add_list(call, *kind, reinterpret_cast<void*>(value));
        break;
      case 's': {
        size_t length = 0;
        const char* text = nullptr;
        void* const string = reinterpret_cast<void*>(value);
        if (abi.torch_string_length(string, &length) || abi.torch_string_c_str(string, &text))
          call.plain = false;
        else
          call.key.add(std::string_view(text, length));
        break;
      }
      default:
        call.key.add(static_cast<int64_t>(value));
    }
  }
  call.key.add(call.device);
  call.plain = call.plain && call.key.whole() &&
               !(op.may_differ && abi.deterministic(abi.global_context()));
}

// Of a list whoever receives it owns the items too.
void release_list(char kind, void* list) {
  size_t size = 0;
  if (kind == 'T') abi.torch_list_size(list, &size);
  for (size_t i = 0; i < size; ++i) {
    Value item = 0;
    if (abi.torch_list_get_item(list, i, &item) == 0)
      abi.aoti_torch_delete_tensor_object(reinterpret_cast<Tensor>(item));
  }
  abi.torch_delete_list(list);
}

/// Frees what a stack of these kinds holds.
void release(const char* kind, const Value* stack) {
  for (; *kind != 0; ++kind) {
    Value value = *stack++;
    if (*kind == '?') {
      ++kind;
      if (value == 0) continue;
      const auto* inside = reinterpret_cast<const Value*>(value);
      value = *inside;
      delete inside;
    }
    if (*kind == 't') abi.aoti_torch_delete_tensor_object(reinterpret_cast<Tensor>(value));
    if (*kind == 'T' || *kind == 'I' || *kind == 'B')
      release_list(*kind, reinterpret_cast<void*>(value));
    if (*kind == 's') abi.torch_delete_string(reinterpret_cast<void*>(value));
  }
}

/// Hands outputs over as an op's results.
bool give(const Op& op, Tensors& outputs, Value* stack) {
  if (*op.results == 'T') {
    void* list = nullptr;
    if (abi.torch_new_list_reserve_size(outputs.all.size(), &list)) return false;
    for (Tensor each : outputs.all) abi.torch_list_push_back(list, reinterpret_cast<Value>(each));
    stack[0] = reinterpret_cast<Value>(list);
  } else {
    for (size_t i = 0; i < outputs.all.size(); ++i)
      stack[i] = reinterpret_cast<Value>(outputs.all[i]);
  }
  outputs.all.clear();
  return true;
}

/// The layouts of an op's results; false where they cannot be read.
bool read_outputs(const Op& op, const Value* stack, Recipe& recipe) {
  Call call;
  if (*op.results == 'T')
    add_list(call, 'T', reinterpret_cast<void*>(stack[0]));
  else
    for (size_t i = 0; op.results[i] != 0; ++i)
      add_tensor(call, reinterpret_cast<Tensor>(stack[i]));
  return read_outputs(call, recipe);
}

/// The op of Python's takes the arguments and leaves its results.
void run_cold(const Op& op, Value* stack, const Call& call) {
  Cold own;
  Cold* const before = cold;
  cold = &own;
  const int32_t status = abi.torch_call_dispatcher(op.cold, "", stack, kVersion);
  cold = before;
  if (status == 0 && own.failure.empty()) {
    if (own.known && call.plain && read_outputs(op, stack, own.recipe))
      plans.put(call.key, std::move(own.recipe), own.epoch);
    return;
  }
  if (status == 0) release(op.results, stack);
  // What unwinds ends this frame's objects, but throw_error() copies the text first.
  abi.throw_error(own.failure.empty()
                      ? "an op of attnforge failed; stderr has what torch says of it"
                      : own.failure.c_str());
}

void run(const Op& op, Value* stack) {
  Call call;
  read(op, stack, call);
  if (call.plain) {
    Tensors outputs;
    const Plans::Known known = plans.find(call.key);
    if (known.recipe != nullptr && launch(known, call, outputs)) {
      release(op.arguments, stack);
      runs.fetch_add(1, std::memory_order_relaxed);
      if (give(op, outputs, stack)) return;
      abi.throw_error("torch made no list");
    }
  }
  run_cold(op, stack, call);
}

template <int kIndex>
void kernel(Value* stack, uint64_t, uint64_t) {
  run(kOps[kIndex], stack);
}

constexpr Kernel kKernels[] = {kernel<0>, kernel<1>, kernel<2>, kernel<3>};
static_assert(std::size(kKernels) == std::size(kOps));

}  // namespace
}  // namespace attnforge_torch

using namespace attnforge_torch;

/// Puts kernels of the dispatch key `key` ("CUDA"; of tests "CPU") under the ops, which Python has
/// defined. run: attnforge_run(). NULL, or what torch does not have; then nothing has changed. Once
/// for a key.
ATTNFORGE_TORCH_API const char* attnforge_torch_open(const char* key, Run run) {
  if (const char* missing = find_abi(std::strcmp(key, "CUDA") == 0, abi)) return missing;
  library_run = run;
  void* library = nullptr;  // lives as long as the process, as what it registers does
  if (abi.aoti_torch_library_init_impl("attnforge", key, "attnforge", 0, &library))
    return "a library of ops named attnforge";
  for (size_t i = 0; i < std::size(kOps); ++i)
    if (abi.torch_library_impl(library, kOps[i].name, kKernels[i], kVersion)) return kOps[i].name;
  return nullptr;
}

/// Says in a cold call how the next like it runs: bytes and words as of parse(). The plan has to
/// live until the next forget().
ATTNFORGE_TORCH_API void attnforge_torch_remember(void* plan, const char* bytes, size_t size,
                                                  const int64_t* words, size_t num_words,
                                                  uint64_t epoch) {
  if (cold == nullptr) return;
  Recipe recipe;
  recipe.plan = plan;
  recipe.bytes.assign(bytes, size);
  if (!parse({words, num_words}, recipe)) return;
  cold->recipe = std::move(recipe);
  cold->epoch = epoch;
  cold->known = true;
}

/// Says in a cold call that it failed: what it returns is dropped, and its caller has a
/// RuntimeError of this text.
ATTNFORGE_TORCH_API void attnforge_torch_fail(const char* text) {
  if (cold != nullptr) cold->failure = text;
}

/// Whether the thread is in a cold call.
ATTNFORGE_TORCH_API int attnforge_torch_is_cold() { return cold != nullptr; }

/// Which forget() was the last.
ATTNFORGE_TORCH_API uint64_t attnforge_torch_epoch() { return plans.epoch(); }

/// No call is known any more, and none that was is under way.
ATTNFORGE_TORCH_API void attnforge_torch_forget() { plans.forget(); }

/// How many calls ran without Python.
ATTNFORGE_TORCH_API uint64_t attnforge_torch_runs() { return runs.load(std::memory_order_relaxed); }
