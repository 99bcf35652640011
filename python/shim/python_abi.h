// python_abi.h - the functions of CPython's stable ABI that the shim calls, found in the process:
// no header of Python is needed to build, and one library serves every version.
#pragma once
#include <cstddef>
#include <cstdint>

namespace attnforge_torch {

using Object = void*;  // PyObject*
using Function = Object (*)(Object self, Object const* arguments, ptrdiff_t count);

struct Method {  // PyMethodDef
  const char* name;
  Function function;
  int flags;
  const char* text;
};
enum { kFastCall = 0x80 };  // METH_FASTCALL

// X(name, result, arguments): a member of Python and the symbol it is found by.
#define ATTNFORGE_PYTHON_FUNCTIONS(X)                                      \
  X(Py_IncRef, void, (Object))                                             \
  X(Py_DecRef, void, (Object))                                             \
  X(PyEval_SaveThread, void*, ())                                          \
  X(PyEval_RestoreThread, void, (void*))                                   \
  X(PyErr_Occurred, Object, ())                                            \
  X(PyErr_Clear, void, ())                                                 \
  X(PyLong_AsLongLong, long long, (Object))                                \
  X(PyLong_FromLongLong, Object, (long long))                              \
  X(PyFloat_AsDouble, double, (Object))                                    \
  X(PyUnicode_AsUTF8AndSize, const char*, (Object, ptrdiff_t*))            \
  X(PyBytes_AsStringAndSize, int, (Object, char**, ptrdiff_t*))            \
  X(PyTuple_New, Object, (ptrdiff_t))                                      \
  X(PyTuple_Size, ptrdiff_t, (Object))                                     \
  X(PyTuple_GetItem, Object, (Object, ptrdiff_t))                          \
  X(PyTuple_SetItem, int, (Object, ptrdiff_t, Object))                     \
  X(PyDict_Next, int, (Object, ptrdiff_t*, Object * name, Object * value)) \
  X(PyObject_GetAttr, Object, (Object, Object name))                       \
  X(PyCFunction_NewEx, Object, (Method*, Object self, Object module))

struct Python {
#define ATTNFORGE_PYTHON_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  ATTNFORGE_PYTHON_FUNCTIONS(ATTNFORGE_PYTHON_MEMBER)
#undef ATTNFORGE_PYTHON_MEMBER
};

/// What Python found out of its objects and of torch's; native.py has the same struct. Objects are
/// borrowed, and live as long as the process.
struct Layout {
  Object none, yes, no;
  Object integer, real, text, tuple, dict, tensor;  // types
  Object forward_ad, current_level, requires_grad;  // a module, and names of attributes
  int64_t type;                                     // in objects: where their type is, in bytes
  int64_t handle;                                   // in a tensor's: where its handle points to
  int64_t keys;                                     // in what that is: its dispatch keys
  uint64_t plain_keys, plain_inference_keys;  // of tensors that have memory and are as it says
};

}  // namespace attnforge_torch
