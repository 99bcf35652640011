"""Gradients of the arrays that a score's text reads: what attention_backward() adds them to."""

from typing import NamedTuple

from . import _checks
from ._arrays import backend_of, contiguous
from ._errors import InvalidError
from ._formats import FP32, ITEM_BYTES
from ._overlap import overlap, span
from ._problem import DTYPES


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
    views = []
    for name, array in dargs.items():
        here = f"dargs[{name!r}]"
        if name not in (args or {}):
            raise InvalidError(f"{here} has no array to be the gradient of: args names {', '.join(args or {}) or 'nothing'}")
        of = args[name]
        if not hasattr(of, "shape"):
            raise InvalidError(f"{here}: args[{name!r}] is a number; arrays of floats have a gradient")
        view, shape = backend_of(array).view(here, array, stream), tuple(of.shape)
        if tuple(view.shape) != shape or view.code != FP32 or view.device != device or tuple(view.strides) != contiguous(shape):
            raise InvalidError(
                f"{here} is {DTYPES[view.code]} {tuple(view.shape)} with strides {tuple(view.strides)} on GPU {view.device}; it must be "
                f"contiguous float32 {shape} on GPU {device}, as many elements as args[{name!r}] has, whatever its dtype"
            )
        views.append(view)
    return Dargs(", ".join(dargs), tuple(views))


def check_dargs_apart(dargs, others):
    """Raises InvalidError if one of them shares memory with another, or with an array of others, of which some may be None."""
    arrays = [*dargs.views, *(array for array in others if array is not None)]
    for i, a in enumerate(dargs.views):
        for b in arrays[i + 1 :]:
            first, second = ((x.address - b.address, x.shape, x.strides, ITEM_BYTES[x.code]) for x in (a, b))
            (a_first, a_end), (b_first, b_end) = (span(*x[1:]) for x in (first, second))
            if b_first - a_end < first[0] < b_end - a_first and overlap(first, second):
                name = dargs.word.split(", ")[i]
                raise InvalidError(f"dargs[{name!r}] shares memory with another array of the call; give it memory of its own")
