"""The user's own score and mask: texts, and their arguments as the problem and a run have them."""

import ctypes
import struct

from . import _checks
from ._arrays import backend_of, contiguous
from ._errors import InvalidError
from ._formats import ANY_DTYPE, FORMATS, ITEM_BYTES

_USUAL = 1 << 20  # bytes of an array whose size the problem need not say


class Code:
    """What a call has of code: texts for the problem, words for the run, and arrays, which own what the words point to."""

    __slots__ = ("texts", "words", "arrays", "backend")

    def __init__(self, texts, words, arrays, backend=None):
        self.texts, self.words, self.arrays, self.backend = texts, words, arrays, backend

    def argument(self, more=()):
        """The words as the C API takes them, with more of them after these; None without any."""
        words = self.words + more
        return (ctypes.c_uint64 * len(words))(*words) if words else None


NO_CODE = Code(("", "", ""), (), ())


def code_of(score, mask, args, stream, block_mask=None):
    """The Code of attention()'s arguments. Where there is no mask among them it is the text that the block mask was made of, with its
    args, if it was. Raises InvalidError, which names the argument."""
    text = getattr(block_mask, "mask", None)
    if mask is None and isinstance(text, str):
        mask = text
        if block_mask.args and (args is None or isinstance(args, dict)):
            args = {**block_mask.args, **(args or {})}
    if score is None and mask is None and args is None:
        return NO_CODE
    score = "" if score is None else _checks.text("score", score)
    mask = "" if mask is None else _checks.text("mask", mask)
    if args is not None and not isinstance(args, dict):
        _checks.refuse_type("args", args, "a dict from names to arrays and numbers")
    listed, words, arrays, backend = [], [], [], None
    for name, value in (args or {}).items():
        if not isinstance(name, str):
            _checks.refuse_type("a name in args", name, "a str")
        text, word, array = _number(name, value) or _array(name, value, stream)
        listed.append(text)
        words.append(word)
        if array is not None:
            arrays.append(array)
            backend = backend or backend_of(value)
    return Code((score, mask, ", ".join(listed)), tuple(words), tuple(arrays), backend)


def _number(name, value):
    value = _checks.plain(value)
    if isinstance(value, int):  # a bool too
        value = _checks.integer(f"args[{name!r}]", int(value), -(2**31), 2**31 - 1)
        return f"int {name}", value & 0xFFFFFFFF, None
    if isinstance(value, float):
        try:
            return f"float {name}", struct.unpack("=I", struct.pack("=f", value))[0], None
        except OverflowError:
            raise InvalidError(f"args[{name!r}]={value} is too large for a float of 32 bits") from None
    return None


def _array(name, value, stream):
    name_here = f"args[{name!r}]"
    backend = backend_of(value)
    array = backend.view(name_here, value, stream, allowed=ANY_DTYPE)
    whole = contiguous(array.shape)
    if any(size > 1 and array.strides[i] != whole[i] for i, size in enumerate(array.shape)) and _elements(array) > 0:
        raise InvalidError(f"{name_here} {tuple(array.shape)} has strides {tuple(array.strides)}; it must be contiguous")
    if array.address == 0:
        raise InvalidError(f"{name_here} is empty; leave it out, or pass an array of one element")
    # Of a large one the tuner must know the size: it makes up arrays to run on.
    extent = f"[{_elements(array)}]" if _elements(array) * ITEM_BYTES[array.code] > _USUAL else ""
    return f"{FORMATS[array.code].in_code}* {name}{extent}", array.address, array


def _elements(array):
    count = 1
    for size in array.shape:
        count *= size
    return count


def check_devices(code, device, name="q"):
    """Raises InvalidError unless all arrays are on one GPU."""
    for array in code.arrays:
        if array.device != device:
            raise InvalidError(f"an array of args is on GPU {array.device} and {name} is on GPU {device}")
