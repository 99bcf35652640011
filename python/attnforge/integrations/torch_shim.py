"""libattnforge_torch.so, kernels of the ops without Python: what it takes of this package, which has the rules.

A call of an op that the shim does not know comes here as a cold one, and remember() says how the next like it runs. Where the library is
missing, ATTNFORGE_TORCH_SHIM is 0, or torch is older than 2.10, ops are Python's alone. As torch has no way through C++ for exceptions
of Python, a cold call that fails is a RuntimeError of the same text; failure() has the exception itself.
"""

import ctypes
import os
import threading

from .._calls.fast import fast, find
from .._gradients.autograd import with_tensors
from .._library import lib, library_path
from .._plans import plan_cache

_MARK = 0x5AF0 << 48  # no address of a GPU, and no stride
_shim = None
_why_not = "it was not opened yet"
_held = set()  # plans that the shim may run
_failed = threading.local()


def open_shim(key="CUDA", run=None):
    """Puts the shim's kernels under the ops, which are there, once for a key. key: of torch's dispatcher, and run: in place of
    attnforge_run(), for tests."""
    global _shim, _why_not
    if os.environ.get("ATTNFORGE_TORCH_SHIM") == "0":
        _why_not = "ATTNFORGE_TORCH_SHIM is 0"
        return
    path = os.path.join(os.path.dirname(library_path()), "libattnforge_torch.so")
    try:
        shim = ctypes.CDLL(path)
    except OSError as error:
        _why_not = str(error)
        return
    shim.attnforge_torch_open.restype = ctypes.c_char_p
    shim.attnforge_torch_remember.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
    shim.attnforge_torch_epoch.restype = shim.attnforge_torch_runs.restype = ctypes.c_uint64
    missing = shim.attnforge_torch_open(key.encode(), ctypes.cast(run or lib()["attnforge_run"], ctypes.c_void_p))
    if missing:
        _why_not = f"torch does not have {missing.decode()}"
        return
    if _shim is None:
        plan_cache.on_clear.append(forget)
    _shim, _why_not = shim, ""


def is_open():
    return _shim is not None


def is_cold():
    """Whether this thread is in a call that the shim did not know."""
    return _shim is not None and _shim.attnforge_torch_is_cold() != 0


def why_not():
    """Why ops run without the shim; "" where they have it."""
    return _why_not


def runs():
    """How many calls ran without Python."""
    return 0 if _shim is None else _shim.attnforge_torch_runs()


def forget():
    """Before plans go: the shim knows none afterwards."""
    global _held
    before, _held = _held, set()  # first: what is remembered meanwhile is held by the new one
    _shim.attnforge_torch_forget()
    before.clear()


def cold(results):
    """Makes a function what runs calls that the shim does not know. results: how many tensors an op returns; None: a list."""

    def make(function):
        def run(q, *arguments):
            if not is_cold():
                return function(q, *arguments)
            try:
                return function(q, *arguments)
            except Exception as error:
                _failed.error = error
                _shim.attnforge_torch_fail(f"attnforge.{type(error).__name__}: {error}".encode())
            nothing = [q.new_empty(0) for _ in range(results or 0)]
            return nothing if results is None else None if results == 0 else nothing[0] if results == 1 else tuple(nothing)

        return run

    return make


def failure():
    """The exception of this thread's last cold call that failed, once; None without."""
    error, _failed.error = getattr(_failed, "error", None), None
    return error


class _Marked:
    """A tensor of which only the place among the op's tensors is known."""

    def __init__(self, index):
        self.data_ptr = lambda: _MARK + index


def remember_forward(q, k, v, parts, options, outputs, out):
    """After attention() in a cold call. options: what it was given, with a Leaf in the place of each of parts; outputs: o, or o and lse;
    out: what it was given of them."""
    if "rope_offset" in options or parts and out is not None:  # the shim would not see these change or meet
        return
    epoch = _shim.attnforge_torch_epoch()  # first: what is forgotten from now on is not kept
    key = fast.key_of_attention(q, k, v, out, with_tensors(options, parts))
    call = find(key)
    if call is None:
        return
    count = 3 + len(parts)
    marks = [_MARK + i for i in (0, 1, 2, count, count + 1)]
    low = (q.data_ptr() | k.data_ptr() | v.data_ptr() | outputs[0].data_ptr()) & 15
    _remember(call.recipe(marks, with_tensors(options, [_Marked(3 + i) for i in range(len(parts))]), low), epoch)


def remember_backward(saved, dout, dlse, options, gradients):
    """After attention_backward() in a cold call without other tensors, which made these gradients."""
    epoch = _shim.attnforge_torch_epoch()
    call = find(fast.key_of(("backward", *options), (*saved, dout, dlse, None, False, False, *options.values())))
    if call is None or not hasattr(call, "recipe"):
        return
    last = 6 if dlse is None else 7
    marks = [_MARK + i for i in (0, 1, 2, 3, 5, last, last + 1, last + 2, 4)] + [0 if dlse is None else _MARK + 6]
    low = 0
    for each in (*saved[:4], dout, *gradients):
        low |= each.data_ptr() & 15
    _remember(call.recipe(marks, low), epoch)


def _remember(recipe, epoch):
    if recipe is None or recipe[0].passing:
        return
    plan, tensors, structs, pairs = recipe
    _held.add(plan)
    starts, memory = {}, bytearray(tensors)
    for struct in structs:
        starts[ctypes.addressof(struct)] = len(memory)
        memory += bytes(struct) + bytes(-ctypes.sizeof(struct) % 8)
    pointers, addresses = [], []
    for at in range(0, len(memory), 8):
        word = int.from_bytes(memory[at : at + 8], "little")
        if word in starts:
            pointers += starts[word], at
        elif word >> 48 == _MARK >> 48:
            addresses += word - _MARK, at
    pairs = [word for pair in pairs for word in pair]
    words = plan.workspace_bytes, len(pointers) // 2, *pointers, len(addresses) // 2, *addresses, len(pairs) // 4, *pairs
    array = (ctypes.c_int64 * len(words))(*words)
    _shim.attnforge_torch_remember(plan.handle, bytes(memory), len(memory), array, len(words), epoch)
