"""Contexts of the C API: one for each GPU, opened when first needed, and one for each arch that is only looked at."""

import ctypes
import logging
import threading

from . import _c, _checks
from ._library import check, encode, lib

_log = logging.getLogger("attnforge")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


@_c.LogFunction
def _to_logging(_user, level, message):
    # The level was decided by $ATTNFORGE_LOG already; logging's own filters come after it.
    _log.log(_LEVELS[min(max(level, 0), 3)], "%s", message.decode(errors="replace"))


_lock = threading.Lock()
_contexts = {}


def context(device=0, arch=None):
    """Handle of the context of a GPU's ordinal, or of an arch. It lives as long as the process: plans point into it."""
    key = _checks.integer("device", device, 0, 2**31 - 1) if arch is None else _checks.text("arch", arch)
    handle = _contexts.get(key)
    if handle is None:
        with _lock:
            handle = _contexts.get(key)
            if handle is None:
                desc = _c.ContextDesc(struct_size=ctypes.sizeof(_c.ContextDesc), device=device, arch=encode("arch", arch), log=_to_logging)
                made = ctypes.c_void_p()
                check(lib().attnforge_context_create(ctypes.byref(desc), ctypes.byref(made)))
                handle = _contexts[key] = made.value
    return handle
