"""Finds libattnforge.so, declares its functions and opens its contexts."""

import ctypes
import glob
import logging
import os
import struct
import threading

from . import _c
from ._checks import integer, text
from ._errors import error_of

_SONAMES = ("libattnforge.so", "libattnforge.so.0.1")


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
        if not hasattr(library, "attnforge_abi_version") or library.attnforge_abi_version() != _c.ABI_VERSION:
            tried.append(f"  {path}: is not libattnforge.so of ABI version {_c.ABI_VERSION}")
            continue
        for name, (result, arguments) in _c.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
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


# ---- Contexts: one for each GPU, opened when first needed, and one for each arch that is only looked at ----

_log = logging.getLogger("attnforge")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


@_c.LogFunction
def _to_logging(_user, level, message):
    # The level was decided by $ATTNFORGE_LOG already; logging's own filters come after it.
    _log.log(_LEVELS[min(max(level, 0), 3)], "%s", message.decode(errors="replace"))


_opening = threading.Lock()
_contexts = {}
_no_jit = False  # of all of them


def context(device=0, arch=None):
    """Handle of the context of a GPU's ordinal, or of an arch. It lives as long as the process: plans point into it."""
    key = integer("device", device, 0, 2**31 - 1) if arch is None else text("arch", arch)
    handle = _contexts.get(key)
    if handle is None:
        with _opening:
            handle = _contexts.get(key)
            if handle is None:
                size, flags = ctypes.sizeof(_c.ContextDesc), _c.NO_JIT if _no_jit else 0
                desc = _c.ContextDesc(struct_size=size, flags=flags, device=device, arch=encode("arch", arch), log=_to_logging)
                made = ctypes.c_void_p()
                check(lib().attnforge_context_create(ctypes.byref(desc), ctypes.byref(made)))
                handle = _contexts[key] = made.value
    return handle


def forbid_jit(no_jit):
    """Whether contexts, also those that are opened later, may not compile and tune."""
    global _no_jit
    with _opening:
        _no_jit = no_jit
        for handle in _contexts.values():
            check(lib().attnforge_context_set_no_jit(handle, no_jit))


def opened_devices():
    """The GPUs that have a context."""
    return [key for key in list(_contexts) if isinstance(key, int)]


def packer(of, *names):
    """(bytes, function) of a ctypes struct that begins with struct_size: the function packs these bytes and the named members, which are in
    its order, each as an address, and after it 24 or 16 bytes of a tensor's or of rows' strides. Other members are zeros."""
    form = "=8s"
    for name, kind in of._fields_[1:]:
        size = ctypes.sizeof(kind)
        form += f"{size}x" if name not in names else "Q" if size == 8 else f"Q{size - 8}s"
    return struct.pack("=Ixxxx", ctypes.sizeof(of)), struct.Struct(form).pack
