"""The user's own score and mask: texts, and their arguments as the problem and a run have them, with gradients of these."""

import ctypes
import math
import struct
from typing import NamedTuple

from .. import _checks
from .._arrays import backend_of, contiguous
from .._errors import InvalidError
from .._formats import ANY_DTYPE, FORMATS, FP32, ITEM_BYTES
from .overlap import first_overlap
from .._problem import DTYPES

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


def argument_again(args, more_words=()):
    """Code.argument() of args like those of an earlier call, which passed every check; None without any. Raises for a number that has no
    word and for an array without memory."""
    if not args and not more_words:
        return None
    words = []
    for value in args.values() if args else ():
        kind = type(value)
        if kind is float or kind is int or kind is bool:
            words.append(_number("", value)[1])
        else:
            words.append(value.data_ptr())
            if not words[-1]:
                raise InvalidError("no memory")
    words += more_words
    return (ctypes.c_uint64 * len(words))(*words)


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
    elements, whole = math.prod(array.shape), contiguous(array.shape)
    if any(size > 1 and array.strides[i] != whole[i] for i, size in enumerate(array.shape)) and elements > 0:
        raise InvalidError(f"{name_here} {tuple(array.shape)} has strides {tuple(array.strides)}; it must be contiguous")
    if array.address == 0:
        raise InvalidError(f"{name_here} is empty; leave it out, or pass an array of one element")
    # Of a large one the tuner must know the size: it makes up arrays to run on.
    extent = f"[{elements}]" if elements * ITEM_BYTES[array.code] > _USUAL and "[" not in name else ""
    aligned, plain = ("aligned ", name[len("aligned ") :]) if name.startswith("aligned ") else ("", name)
    return f"{aligned}{FORMATS[array.code].in_code}* {plain}{extent}", array.address, array


def name_of(declared):
    """The name by which texts know an array: "mask" of "aligned mask[seqlen_q * seqlen_kv]", as args may have it."""
    return declared.removeprefix("aligned ").partition("[")[0]


def check_devices(code, device, name="q"):
    """Raises InvalidError unless all arrays are on one GPU."""
    for array in code.arrays:
        if array.device != device:
            raise InvalidError(f"an array of args is on GPU {array.device} and {name} is on GPU {device}")


# ---- gradients of the arrays that a score reads ----


class Dargs(NamedTuple):
    """The word of the problem, and for each name in it an array, which owns what its address points to."""

    word: str = ""
    views: tuple = ()

    def addresses(self):
        return tuple(view.address for view in self.views)


def dargs_of(dargs, args, device, stream):
    """The Dargs of attention_backward()'s argument. Raises InvalidError, which names what is wrong."""
    if dargs is None or isinstance(dargs, dict) and not dargs:
        return Dargs()
    if not isinstance(dargs, dict):
        _checks.refuse_type("dargs", dargs, "a dict from names in args to float32 arrays")
    views, words = [], []
    for name, array in dargs.items():
        here = f"dargs[{name!r}]"
        if name not in (args or {}):
            raise InvalidError(f"{here} has no array to be the gradient of: args names {', '.join(args or {}) or 'nothing'}")
        of = args[name]
        if not hasattr(of, "shape"):
            raise InvalidError(f"{here}: args[{name!r}] is a number; arrays of floats have a gradient")
        view, shape = backend_of(array).view(here, array, stream), tuple(of.shape)
        whole = may_be_whole(name, of) and array.dtype == of.dtype
        dtype_fits = view.code == FP32 or whole
        if tuple(view.shape) != shape or not dtype_fits or view.device != device or tuple(view.strides) != contiguous(shape):
            raise InvalidError(
                f"{here} is {DTYPES[view.code]} {tuple(view.shape)} with strides {tuple(view.strides)} on GPU {view.device}; it must be "
                f"contiguous float32 {shape} on GPU {device}, as many elements as args[{name!r}] has, whatever its dtype"
            )
        views.append(view)
        words.append("whole " * whole + name_of(name))
    return Dargs(", ".join(words), tuple(views))


def may_be_whole(name, of):
    """Whether the gradient of an array may be of its own dtype: each pair of a row and a key then writes an element of its own."""
    return name.startswith("aligned ") and getattr(of, "dtype", None) is not None and of.dtype.itemsize == 2


def new_dargs(torch, args, whole):
    """(arrays for dargs, whether they are to be written whole) of {name: tensor}; whole: if they may."""
    if whole and len(args) == 1:
        ((name, of),) = args.items()
        if may_be_whole(name, of):
            return {name: torch.empty_like(of, memory_format=torch.contiguous_format)}, True
    return {name: torch.zeros(of.shape, dtype=torch.float32, device=of.device) for name, of in args.items()}, False


def check_dargs_apart(dargs, others):
    """Raises InvalidError if one of them shares memory with another, or with an array of others, of which some may be None."""
    found = first_overlap((*dargs.views, *others), range(len(dargs.views)))
    if found is not None:
        name = dargs.word.split(", ")[found[0]]
        raise InvalidError(f"dargs[{name!r}] shares memory with another array of the call; give it memory of its own")
