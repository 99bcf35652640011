// python_calls.cpp - calls of attention() and others, of torch's tensors, as functions of Python
// that are not written in it: a call like an earlier one is read, known and run here. Every other
// one is left to Python, which then says how the next like it runs.
#include "python_abi.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "launch.h"

#define ATTNFORGE_TORCH_API extern "C" __attribute__((visibility("default")))

namespace attnforge_torch {
namespace {

Python python;
Layout layout;

enum Which : int64_t { kAttention, kBackward, kAppend, kTraining };  // as native.py

// What a value is, in keys.
enum Kind : int64_t { kNone = 1, kYes, kNo, kInteger, kReal, kText, kTuple, kDict, kTensor };

template <typename Word>
Word word_at(const void* object, int64_t offset) {
  Word word;
  std::memcpy(&word, static_cast<const char*>(object) + offset, sizeof word);
  return word;
}

Object owned(Object object) {
  python.Py_IncRef(object);
  return object;
}

/// Whether a tensor is of the device's memory, as its strides say: not one of a subclass with
/// operators of its own, of a transform, without memory, or whose sign is to be flipped.
bool has_plain_keys(Tensor handle) {
  const auto* const inside = word_at<const char*>(handle, 0);
  if (inside == nullptr) return false;
  const auto keys = word_at<uint64_t>(inside, layout.keys);
  return keys == layout.plain_keys || keys == layout.plain_inference_keys;
}

struct PythonCall : Call {
  bool grad = abi.aoti_torch_grad_mode_is_enabled();
  int64_t requires_grad = 0;  // a bit for each tensor
  Which which = kAppend;
  RowsOf rows = kNoRows;  // of the value that is added
};

void add_tensor_of(PythonCall& call, Object object) {
  const Tensor handle = static_cast<char*>(object) + layout.handle;
  if (!has_plain_keys(handle)) {
    call.plain = false;
    return;
  }
  call.key.add(kTensor);
  const size_t place = call.num_tensors;
  add_tensor(call, handle, call.rows);
  if (!call.grad) return;
  const Object found = python.PyObject_GetAttr(object, layout.requires_grad);
  if (found == nullptr) {
    python.PyErr_Clear();
    call.plain = false;
    return;
  }
  if (found != layout.no) call.requires_grad |= int64_t{1} << place;
  python.Py_DecRef(found);
}

void add_number(PythonCall& call, Object object) {
  const long long number = python.PyLong_AsLongLong(object);
  if (number == -1 && python.PyErr_Occurred() != nullptr) {
    python.PyErr_Clear();
    call.plain = false;
  }
  call.key.add(kInteger);
  call.key.add(number);
}

void add_text(PythonCall& call, Object object) {
  ptrdiff_t size = 0;
  const char* const text = python.PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) {
    python.PyErr_Clear();
    call.plain = false;
    return;
  }
  call.key.add(kText);
  call.key.add(std::string_view(text, static_cast<size_t>(size)));
}

void add(PythonCall& call, Object object);

void add_dict(PythonCall& call, Object object) {
  call.key.add(kDict);
  ptrdiff_t at = 0;
  Object name = nullptr, value = nullptr;
  while (call.plain && call.key.whole() && python.PyDict_Next(object, &at, &name, &value) != 0) {
    add(call, name);
    add(call, value);
  }
  call.key.add(kDict);
}

void add(PythonCall& call, Object object) {
  const auto type = word_at<Object>(object, layout.type);
  if (type == layout.tensor) {
    add_tensor_of(call, object);
  } else if (object == layout.none) {
    call.key.add(kNone);
  } else if (object == layout.yes) {
    call.key.add(kYes);
  } else if (object == layout.no) {
    call.key.add(kNo);
  } else if (type == layout.text) {
    add_text(call, object);
  } else if (type == layout.integer) {
    add_number(call, object);
  } else if (type == layout.real) {
    const double number = python.PyFloat_AsDouble(object);
    call.key.add(kReal);
    call.key.add(word_at<int64_t>(&number, 0));
  } else if (type == layout.tuple) {
    const ptrdiff_t size = python.PyTuple_Size(object);
    call.key.add(kTuple);
    call.key.add(size);
    for (ptrdiff_t i = 0; i < size && call.plain && call.key.whole(); ++i)
      add(call, python.PyTuple_GetItem(object, i));
  } else if (type == layout.dict) {
    add_dict(call, object);
  } else {
    call.plain = false;
  }
}

/// Whose rows value i of a call may have: which, out, q, k, v, and of gradients o, lse, dout, dlse.
RowsOf rows_of(Which which, ptrdiff_t i) {
  if (i == 3 || i == 4) return kKeys;
  return i == 2 || (which == kBackward && i >= 5 && i <= 8) ? kQueries : kNoRows;
}

/// Packed are queries of three dimensions; those and keys say how many rows there are.
void find_rows(PythonCall& call, Object const* values) {
  for (const RowsOf rows : {kQueries, kKeys}) {
    const Object object = values[2 + rows];
    if (word_at<Object>(object, layout.type) != layout.tensor) return;
    const Tensor handle = static_cast<char*>(object) + layout.handle;
    int64_t dim = 0, *sizes = nullptr;
    if (!has_plain_keys(handle) || abi.aoti_torch_get_dim(handle, &dim) || dim != 3 ||
        abi.aoti_torch_get_sizes(handle, &sizes))
      return;
    call.packed_rows[rows] = sizes[0];
  }
}

/// False for a call that is never known.
bool read(Object const* values, ptrdiff_t count, PythonCall& call) {
  call.key.add(-count);  // no op's
  call.which = static_cast<Which>(python.PyLong_AsLongLong(values[0]));
  if (call.which != kAppend && values[1] == layout.none) find_rows(call, values);
  for (ptrdiff_t i = 0; i < count && call.plain; ++i) {
    call.rows = rows_of(call.which, i);
    add(call, values[i]);
  }
  for (const int64_t rows : call.packed_rows) call.key.add(rounded(rows));
  if (!call.plain || call.num_tensors == 0 || !call.key.whole()) return false;
  const Object level = python.PyObject_GetAttr(layout.forward_ad, layout.current_level);
  const bool no_tangents = level != nullptr && python.PyLong_AsLongLong(level) < 0;
  if (level != nullptr) python.Py_DecRef(level);
  if (!no_tangents) {
    python.PyErr_Clear();
    return false;
  }
  const int64_t deterministic = call.requires_grad != 0 && abi.deterministic(abi.global_context());
  call.key.add(call.requires_grad << 8 | (call.device & 255));
  call.key.add(deterministic);
  return call.key.whole();
}

/// New tensors as Python has them: one, or a tuple; True for none.
Object give(const Tensors& outputs) {
  const std::vector<Tensor>& all = outputs.all;
  if (all.empty()) return owned(layout.yes);
  if (all.size() == 1) return abi.wrap(all[0]);
  const Object tuple = python.PyTuple_New(static_cast<ptrdiff_t>(all.size()));
  for (size_t i = 0; tuple != nullptr && i < all.size(); ++i) {
    const Object each = abi.wrap(all[i]);
    if (each == nullptr) {
      python.Py_DecRef(tuple);
      return nullptr;
    }
    python.PyTuple_SetItem(tuple, static_cast<ptrdiff_t>(i), each);
  }
  return tuple;
}

/// call(which, out, ...values): what a call like an earlier one returns: `out`, or new tensors. A
/// number: the call is Python's, by this number. False: no call like it is known. None: nor will
/// be, or Python has to say why it fails.
Object call(Object, Object const* values, ptrdiff_t count) {
  PythonCall call;
  if (!read(values, count, call)) return owned(layout.none);
  const Plans::Known known = plans.find(call.key);
  if (known.recipe == nullptr) return owned(layout.no);
  if (known.recipe->number != 0) return python.PyLong_FromLongLong(known.recipe->number);
  if (known.recipe->plan == nullptr) return owned(layout.none);
  Tensors outputs;
  void* const thread = python.PyEval_SaveThread();
  const bool ran = launch(known, call, outputs);
  python.PyEval_RestoreThread(thread);
  if (!ran) return owned(layout.none);
  runs.fetch_add(1, std::memory_order_relaxed);
  return values[1] == layout.none ? give(outputs) : owned(values[1]);
}

bool read_bytes(Object bytes, std::string_view& found) {
  char* data = nullptr;
  ptrdiff_t size = 0;
  if (python.PyBytes_AsStringAndSize(bytes, &data, &size) != 0) return false;
  found = {data, static_cast<size_t>(size)};
  return true;
}

/// recipe: a tuple of plan, bytes and words as of parse(). outputs: a tuple of the new tensors.
bool read_recipe(Object told, Object outputs, Recipe& recipe) {
  std::string_view bytes, words;
  recipe.plan = reinterpret_cast<void*>(python.PyLong_AsLongLong(python.PyTuple_GetItem(told, 0)));
  if (!read_bytes(python.PyTuple_GetItem(told, 1), bytes)) return false;
  if (!read_bytes(python.PyTuple_GetItem(told, 2), words)) return false;
  recipe.bytes = bytes;
  std::vector<int64_t> numbers(words.size() / 8);
  std::memcpy(numbers.data(), words.data(), numbers.size() * 8);
  PythonCall made;
  add(made, outputs);
  return parse(numbers, recipe) && read_outputs(made, recipe);
}

/// Says which outputs have the rows of a call; false where a recipe has others than these.
bool mark_outputs(const PythonCall& call, Recipe& recipe) {
  // Gradients after the first three are of arrays that have no such rows.
  const size_t have_rows = call.which == kBackward ? 3 : recipe.outputs.size();
  for (size_t i = 0; i < std::min(have_rows, recipe.outputs.size()); ++i) {
    const RowsOf rows = call.which == kBackward && i > 0 ? kKeys : kQueries;
    const int64_t count = call.packed_rows[rows];
    Output& output = recipe.outputs[i];
    const size_t dim = output.sizes.size();
    if (count < 0 || dim < 2) continue;
    if (dim > 3 || output.sizes[dim == 2 ? 1 : 0] != count ||
        (dim == 2 && output.strides[0] != count))
      return false;
    output.rows = rows;
  }
  for (const Recipe::Rows& each : recipe.rows)
    if (call.packed_rows[each.of] < 0) return false;
  return true;
}

/// remember(recipe, outputs, epoch, ...what call() was given): how the next such call runs. recipe:
/// of read_recipe(); a number, by which Python knows the call; None: never here. True if it is
/// kept.
Object remember(Object, Object const* values, ptrdiff_t count) {
  PythonCall call;
  Recipe recipe;
  const Object told = values[0];
  const auto type = word_at<Object>(told, layout.type);
  bool fits = read(values + 3, count - 3, call);
  if (type == layout.tuple)
    fits = fits && call.requires_grad == 0 && read_recipe(told, values[1], recipe) &&
           mark_outputs(call, recipe);
  else if (type == layout.integer)
    recipe.number = python.PyLong_AsLongLong(told);
  const auto epoch = static_cast<uint64_t>(python.PyLong_AsLongLong(values[2]));
  if (python.PyErr_Occurred() != nullptr) return nullptr;
  if (fits) plans.put(call.key, std::move(recipe), epoch);
  return owned(fits ? layout.yes : layout.no);
}

Method methods[] = {{"call", call, kFastCall, nullptr}, {"remember", remember, kFastCall, nullptr}};

template <typename Function>
bool find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

/// NULL, or what the process does not have.
const char* find_python() {
#define ATTNFORGE_PYTHON_FIND(name, result, arguments) \
  if (!find(#name, python.name)) return #name;
  ATTNFORGE_PYTHON_FUNCTIONS(ATTNFORGE_PYTHON_FIND)
#undef ATTNFORGE_PYTHON_FIND
  return nullptr;
}

}  // namespace
}  // namespace attnforge_torch

using namespace attnforge_torch;

/// call() and remember() for tensors of the dispatch key `key` into `functions`, which Python owns.
/// run, clear: attnforge_run() and attnforge_clear_rest(). NULL, or what the process does not have.
/// With the GIL held.
ATTNFORGE_TORCH_API const char* attnforge_torch_calls(const char* key, Run run, Clear clear,
                                                      const Layout* facts, Object* functions) {
  if (const char* missing = find_abi(std::strcmp(key, "CUDA") == 0, abi)) return missing;
  if (abi.wrap == nullptr) return "THPVariable_Wrap";
  if (const char* missing = find_python()) return missing;
  library_run = run;
  library_clear = clear;
  layout = *facts;
  is_plain = has_plain_keys;
  for (int i = 0; i < 2; ++i)
    functions[i] = python.PyCFunction_NewEx(&methods[i], nullptr, nullptr);
  return functions[0] != nullptr && functions[1] != nullptr ? nullptr : "memory";
}
