"""libattnforge_torch.so, kernels of the ops without Python: what it takes of this package, which has the rules.

A call of an op that the shim does not know comes here as a cold one, and remember() says how the next like it runs. Where the library is
missing, ATTNFORGE_TORCH_SHIM is 0, or torch is older than 2.10, ops are Python's alone. As torch has no way through C++ for exceptions
of Python, a cold call that fails is a RuntimeError of the same text; failure() has the exception itself.
"""

import ctypes
import threading

from .._calls import native
from .._calls.fast import fast, find
from .._gradients.autograd import with_tensors
from .._library import lib

_shim = None
_why_not = "it was not opened yet"
_failed = threading.local()


def open_shim(key="CUDA", run=None):
    """Puts the shim's kernels under the ops, which are there, once for a key. key: of torch's dispatcher, and run: in place of
    attnforge_run(), for tests."""
    global _shim, _why_not
    try:
        shim = native.load()
    except OSError as error:
        _why_not = str(error)
        return
    shim.attnforge_torch_open.restype = ctypes.c_char_p
    shim.attnforge_torch_remember.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
    missing = shim.attnforge_torch_open(key.encode(), ctypes.cast(run or lib()["attnforge_run"], ctypes.c_void_p))
    if missing:
        _why_not = f"torch does not have {missing.decode()}"
        return
    _shim, _why_not = shim, ""


def is_open():
    return _shim is not None


def is_cold():
    """Whether this thread is in a call that the shim did not know."""
    return _shim is not None and _shim.attnforge_torch_is_cold() != 0


def why_not():
    """Why ops run without the shim; "" where they have it."""
    return _why_not


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


def remember_forward(q, k, v, parts, options, outputs, out):
    """After attention() in a cold call. options: what it was given, with a Leaf in the place of each of parts; outputs: o, or o and lse;
    out: what it was given of them."""
    if "rope_offset" in options or parts and out is not None:  # the shim would not see these change or meet
        return
    if options.get("block_mask") is not None:  # nor that the mask is not there any more
        return
    epoch = native.epoch()  # first: what is forgotten from now on is not kept
    key = fast.key_of_attention(q, k, v, out, with_tensors(options, parts))
    call = find(key)
    if call is None:
        return
    count = 3 + len(parts)
    marks = [native.MARK + i for i in (0, 1, 2, count, count + 1)]
    low = native.low_bits(q, k, v, outputs[0])
    recipe = call.recipe(marks, with_tensors(options, [native.Marked(3 + i) for i in range(len(parts))]), low)
    _remember(native.words_of(recipe), epoch)


def remember_backward(saved, dout, dlse, options, gradients):
    """After attention_backward() in a cold call without other tensors, which made these gradients."""
    if options.get("block_mask") is not None:
        return
    epoch = native.epoch()
    call = find(fast.key_of(("backward", *options), (*saved, dout, dlse, None, False, False, *options.values())))
    if call is None or not hasattr(call, "recipe"):
        return
    _remember(native.backward_words(call, *saved, dout, dlse, options, gradients), epoch)


def _remember(told, epoch):
    if told is not None:
        plan, memory, words = told
        _shim.attnforge_torch_remember(plan, memory, len(memory), words, len(words) // 8, epoch)
