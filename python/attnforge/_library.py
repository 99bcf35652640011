"""Finds libattnforge.so and declares its functions (include/attnforge/c.h)."""

import ctypes
import glob
import os
import threading
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p

from ._checks import text
from ._errors import error_of

ABI_VERSION = 2
_SONAMES = ("libattnforge.so", "libattnforge.so.0.1")


class TensorStruct(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("stride_batch", c_int64), ("stride_row", c_int64), ("stride_head", c_int64)]


class RowsStruct(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("stride_batch", c_int64), ("stride_head", c_int64)]


class MergeStruct(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_char_p),
        ("dtype_o", c_char_p),
        ("batch", c_int64),
        ("seqlen", c_int64),
        ("num_heads", c_int64),
        ("head_dim", c_int64),
        ("parts", c_int64),
        ("parts_o", c_void_p),
        ("parts_lse", c_void_p),
        ("o", TensorStruct),
        ("lse", RowsStruct),
    ]


LOG_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class ContextDesc(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("device", c_int32),
        ("arch", c_char_p),
        ("cache_path", c_char_p),
        ("log", LOG_FUNCTION),
        ("log_user", c_void_p),
    ]


class ProgressStruct(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("phase", c_int32),
        ("done", c_int32),
        ("total", c_int32),
        ("failed", c_int32),
        ("best_us", c_double),
        ("default_us", c_double),
        ("elapsed_s", c_double),
        ("remaining_s", c_double),
        ("best_config", c_char_p),
    ]


PROGRESS_FUNCTION = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(ProgressStruct))


class PlanOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("policy", c_int32),
        ("flags", c_uint32),
        ("time_limit_s", c_double),
        ("family", c_char_p),
        ("config", c_char_p),
        ("progress", PROGRESS_FUNCTION),
        ("progress_user", c_void_p),
    ]


class TuneOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rigor", c_int32),
        ("time_limit_s", c_double),
        ("family", c_char_p),
        ("compile_threads", c_int32),
        ("retune", c_int32),
        ("seed", c_uint32),
        ("progress", PROGRESS_FUNCTION),
        ("progress_user", c_void_p),
    ]


class InspectOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("max_candidates", c_int32),
        ("config", c_char_p),
        ("family", c_char_p),
    ]


# Name, result, arguments. Handles and structs are passed as addresses.
_functions = [
    ("attnforge_abi_version", c_uint32, ()),
    ("attnforge_version", c_char_p, ()),
    ("attnforge_last_error", c_char_p, ()),
    ("attnforge_free_string", None, (c_void_p,)),
    ("attnforge_problem_create", c_int, (c_char_p, c_void_p)),
    ("attnforge_problem_destroy", None, (c_void_p,)),
    ("attnforge_problem_format", c_int, (c_void_p, c_char_p, c_size_t, c_void_p)),
    ("attnforge_context_create", c_int, (c_void_p, c_void_p)),
    ("attnforge_context_destroy", None, (c_void_p,)),
    ("attnforge_query", c_int, (c_void_p, c_void_p)),
    ("attnforge_plan_create", c_int, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("attnforge_plan_destroy", None, (c_void_p,)),
    ("attnforge_plan_workspace", c_int, (c_void_p, c_void_p, c_void_p)),
    ("attnforge_plan_config", c_char_p, (c_void_p,)),
    ("attnforge_plan_provenance", c_char_p, (c_void_p,)),
    ("attnforge_run", c_int, (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)),
    ("attnforge_merge_states", c_int, (c_void_p, c_void_p, c_void_p)),
    ("attnforge_append_kv", c_int, (c_void_p, c_void_p, c_void_p)),
    ("attnforge_tune", c_int, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("attnforge_inspect", c_int, (c_void_p, c_void_p, c_void_p, c_void_p)),
]


def declare(*functions):
    """More functions, as modules have them that are imported before the library is opened."""
    _functions.extend(functions)


def _in_prefix(package):
    """Where the library is when `package` is part of a wheel, or installed in <prefix>/share/attnforge/python."""
    prefix = os.path.abspath(os.path.join(package, *[os.pardir] * 4))
    folders = [package, os.path.join(package, "lib")]
    if package == os.path.join(prefix, "share", "attnforge", "python", "attnforge"):
        folders += [os.path.join(prefix, name) for name in ("lib", "lib64")]
        folders += sorted(glob.glob(os.path.join(glob.escape(prefix), "lib", "*-linux-gnu")))
    return [os.path.join(folder, name) for folder in folders for name in _SONAMES]


def _in_checkout(package):
    """Libraries in build folders of the checkout that `package` is in, build/release first."""
    root = os.path.dirname(os.path.dirname(package))
    found = []
    for pattern in ("build*/lib", "build*", "build*/*/lib"):  # cmake presets build into build/<preset>
        for path in glob.glob(os.path.join(glob.escape(root), pattern, _SONAMES[0])):
            folders = os.path.relpath(path, root).split(os.sep)
            # One with a sanitizer ends a process that was not started for it.
            if not any(folder.endswith(("asan", "tsan")) for folder in folders):
                found.append(("release" not in folders, path))
    return [path for _, path in sorted(found)]


def _candidates():
    """Paths to try, best first; names without a folder are left to the loader."""
    named = os.environ.get("ATTNFORGE_LIBRARY")
    if named:
        return [named]
    package = os.path.dirname(os.path.abspath(__file__))
    return [path for path in _in_prefix(package) + _in_checkout(package) if os.path.exists(path)] + list(_SONAMES)


def _open():
    tried = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"  {path}: {error}")
            continue
        if not hasattr(library, "attnforge_abi_version") or library.attnforge_abi_version() != ABI_VERSION:
            tried.append(f"  {path}: is not libattnforge.so of ABI version {ABI_VERSION}")
            continue
        for name, result, arguments in _functions:
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        return library, path
    raise ImportError(
        "libattnforge.so was not found. Build it (./dev build in a checkout) or set ATTNFORGE_LIBRARY to its full path. Tried:\n"
        + "\n".join(tried)
    )


_lock = threading.Lock()
_opened = None


def lib():
    """The library, opened at the first call. Raises ImportError with what was tried."""
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                _opened = _open()
    return _opened[0]


def library_path():
    """Path or name of the library in use."""
    lib()
    return _opened[1]


def version():
    """Version of the library, e.g. "0.1.0"."""
    return lib().attnforge_version().decode()


def check(status):
    """Raises the exception of a status that is not 0."""
    if status:
        raise error_of(status, lib().attnforge_last_error().decode(errors="replace"))


def encode(name, value):
    """A str as the C API takes it; None stays None."""
    return None if value is None else text(name, value).encode()


def take_string(pointer):
    """Text of a char* that the library allocated, which is freed."""
    try:
        return ctypes.string_at(pointer).decode(errors="replace")
    finally:
        lib().attnforge_free_string(pointer)
