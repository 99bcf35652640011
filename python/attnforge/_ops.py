"""What calls of append_kv() and merge_states() share: checks of their arrays, and plans by what addresses are multiples of."""

from . import _c
from ._calls.arguments import alignment_of, used_strides
from ._errors import InvalidError
from ._formats import DTYPES, ITEM_BYTES, numbers_in
from ._plans import plan_of
from ._problem import Problem

PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}  # of batch, rows and heads


class OpCall:
    """A call that was checked, without addresses; immutable but for its plans."""

    __slots__ = ("_device", "_problem", "_bits", "_least_alignment", "_plans")

    def __init__(self, device, arrays, **problem):
        """arrays: whose rows are read or written. problem: the problem but for its alignment."""
        self._device, self._problem, self._plans = device, problem, {}
        self._bits = self._least_alignment = 0
        for array in arrays:
            self._bits |= used_strides(array).bits
            self._least_alignment = max(self._least_alignment, ITEM_BYTES[array.code])

    def _plan(self, low):
        """The plan for arrays of which `low` are the low four bits of all addresses. Those that are known are in _plans."""
        alignment = max(alignment_of(self._bits | low), self._least_alignment)
        plan = self._plans[low] = plan_of(Problem(alignment_bytes=alignment, **self._problem), self._device)
        return plan


def tensor(array, places):
    """The struct of an array without its address; places of batch (None: it has none), rows and heads."""
    return _c.Tensor(None, *(0 if place is None else numbers_in(array, array.strides[place]) for place in places))


def check_array(name, array, shape, code, first, device):
    """Raises InvalidError unless an array has this shape, dtype and GPU, those of the array called `first`, and contiguous rows."""
    if tuple(array.shape) != tuple(shape):
        raise InvalidError(f"{name} has shape {tuple(array.shape)}; it must be {tuple(shape)}, as {first} and the other arrays say")
    if array.code != code:
        raise InvalidError(f"{name} is {DTYPES[array.code]}; it must be {DTYPES[code]}")
    if array.device != device:
        raise InvalidError(f"{name} is on GPU {array.device} and {first} on GPU {device}")
    if array.shape[-1] > 1 and array.strides[-1] != 1:
        raise InvalidError(f"{name} has a stride of {array.strides[-1]} elements in its last dimension; it must be 1")
