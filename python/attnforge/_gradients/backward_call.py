"""A call of attention_backward() that was checked: its plans, and the argument of the launch but for the addresses."""

import struct
from copy import copy
from ctypes import addressof

from .. import _c
from .._calls.fast import fast
from .._calls.marks import mark_rows
from .._calls.parts import NO_ADDRESSES, Tail, addresses_of, has_of_run, of_run_again, structs_in
from .._calls.rest import clear_rest
from .._formats import ITEM_BYTES
from .._library import packer
from .._calls.overlap import span

_TENSORS_HEAD, _pack_tensors = packer(_c.Tensors, "q", "k", "v", "o", "lse", "gradients")
_, _pack_with_parts = packer(_c.Tensors, "q", "k", "v", "o", "lse", *Tail.MEMBERS)
_GRADIENTS_HEAD, _pack_gradients = packer(_c.Gradients, "dout", "dq", "dk", "dv", "dlse", "dsinks")
_OUTPUTS = (5, 6, 7)


class BackwardCall:
    """Of a call whose arrays are q, k, v, o, dout, dq, dk, dv, lse, dlse and dsinks, the last two or None, and of which no array but those in
    args is beside out=. Immutable but for its plans; thread-safe."""

    __slots__ = (
        "device", "packed", "zeros", "_new", "_plans", "_pairs", "_of", "_of_lse", "_of_dlse", "_has_parts", "_has_of_run",
        "_tail", "_rows", "_last",
    )  # fmt: skip

    def __init__(self, arrays, options, allocator, tail, batch):
        """options: CheckedOptions. allocator: the backend that allocates the gradients, None if the caller passed out=. Keeps no array."""
        parts = options.parts
        self.device, self._plans, self._pairs, self._new = arrays[0].device, {}, (), None
        self._tail, self.packed, self._has_parts = tail, parts.packed, parts.rows_may_not_count or bool(parts.of_heads)
        self.zeros = parts.rows_may_not_count and not parts.packed  # whether new gradients are these before the run
        self._has_of_run = has_of_run(options)
        self._rows, self._last = arrays[0].shape[0], 4 * batch
        self._of = tuple(struct.pack("=qqq", *(0 if i is None else array.strides[i] for i in options.places)) for array in arrays[:8])
        self._of_lse, self._of_dlse = (
            struct.pack("=qq", *((0, 0) if array is None else (0, *array.strides)[-3:-1])) for array in arrays[8:10]
        )
        if allocator is None:
            self._pairs = tuple(_pairs(arrays[:10]))
        else:
            self._new = tuple(allocator.allocator(x.shape, x.code, x.device) for x in (*arrays[5:8], arrays[10]) if x is not None)

    def add(self, addresses, plan):
        """The plan for arrays at these addresses: of q, k, v, o, dout, dq, dk and dv."""
        self._plans[_low(addresses)] = plan

    def run(self, q, k, v, o, lse, dout, dlse, out, stream, options, dargs):
        """(status, gradients) of a run with plain tensors of torch; None where more must be looked at. options: by their names. dargs:
        by their names tensors that share memory with no other."""
        queue = fast.stream(self.device) if stream is None else fast.queue(self.device, stream, out is None)
        if queue is None:
            return None
        result = tuple(new() for new in self._new) if out is None else tuple(out)
        dq, dk, dv, *dsinks = result
        at = [x.data_ptr() for x in (q, k, v, o, dout, dq, dk, dv, lse)]
        if not all(at):  # tensors of modes and transforms of torch
            return None
        plan = self._plans.get(_low(at[:8]))
        if plan is None or plan.workspace_bytes and queue != fast.stream(self.device):  # the workspace is of the current one
            return None
        parts = addresses_of(options) if self._has_parts else NO_ADDRESSES
        at += [0 if dlse is None else dlse.data_ptr(), dsinks[0].data_ptr() if dsinks else 0]
        for i, j, below, above in self._pairs:
            if below < at[i] - at[j] < above:
                return None
        of_run = {}
        if self._has_of_run:
            of_run = of_run_again(options, self.device, [x.data_ptr() for x in dargs.values()] if dargs else ())
            if of_run is None:
                return None
        tensors, kept = self._argument(at, parts, **of_run)
        memory, workspace, size = fast.scratch(plan.workspace_bytes, self.device) if plan.workspace_bytes else (None, None, fast.NO_BYTES)
        if self.packed:
            of_q, of_kv = (each + self._last for each in parts[2:4])
            clear_rest(self.device, queue, [(x.data_ptr(), x.shape, x.element_size(), end) for x, end in zip(result, (of_q, of_kv, of_kv))])
        elif self.zeros and out is None:
            for x in result:
                x.zero_()
        return fast.run(plan.handle, tensors, workspace, size, fast.queues[queue]), result

    def _argument(self, at, parts, **of_run):
        """(the bytes of a _c.Tensors, the struct of gradients that it points to and what else it does) with the addresses of all arrays,
        in their order, and of PartArrays. of_run: as Tail.pack() has it."""
        at_q, at_k, at_v, at_o, at_dout, at_dq, at_dk, at_dv, at_lse, at_dlse, at_dsinks = at
        of_q, of_k, of_v, of_o, of_dout, of_dq, of_dk, of_dv = self._of
        gradients = _c.Gradients.from_buffer_copy(
            _pack_gradients(
                _GRADIENTS_HEAD, at_dout, of_dout, at_dq, of_dq, at_dk, of_dk, at_dv, of_dv, at_dlse, self._of_dlse, at_dsinks
            )
        )
        tensors = _TENSORS_HEAD, at_q, of_q, at_k, of_k, at_v, of_v, at_o, of_o, at_lse, self._of_lse
        if not self._has_parts and not of_run:
            return _pack_tensors(*tensors, addressof(gradients)), (gradients,)
        end, kept = self._tail.pack(parts, gradients=addressof(gradients), **of_run)
        return _pack_with_parts(*tensors, *end), (gradients, *kept)

    def of_any_rows(self):
        """As that of Call: lse and dlse may have a stride that is not their number of rows."""
        call = copy(self)
        call._tail = self._tail.of_any_rows()
        own, marked = (struct.pack("=qq", 0, rows) for rows in (self._rows, mark_rows()))
        call._of_lse, call._of_dlse = (marked if each == own else each for each in (self._of_lse, self._of_dlse))
        return call

    def recipe(self, marks, options, low, any_rows=False, of_args=()):
        """As that of Call, of new gradients. marks: of all arrays, 0 for those that are not there. of_args: of gradients of arrays in args."""
        plan = self._plans.get(low)
        if plan is None or self._new is None:
            return None
        if any_rows and self.packed:
            return self.of_any_rows().recipe(marks, options, low, of_args=of_args)
        of_run = of_run_again(options, self.device, of_args) if self._has_of_run else {}
        if of_run is None:
            return None
        tensors, kept = self._argument(marks, addresses_of(options) if self._has_parts else NO_ADDRESSES, **of_run)
        return plan, tensors, structs_in(kept), ()


def _low(addresses):
    """What decides how arrays are aligned, beside their strides."""
    q, k, v, o, dout, dq, dk, dv = addresses
    return (q | k | v | o | dout | dq | dk | dv) & 15


def _pairs(arrays):
    """(gradient, other, below, above): they may share memory if below < address of gradient - address of other < above."""
    spans = [array and span(array.shape, array.strides, ITEM_BYTES[array.code]) for array in arrays]
    for i in _OUTPUTS:
        for j, other in enumerate(spans):
            if other is None or j == i or j in _OUTPUTS and j < i:
                continue
            yield i, j, other[0] - spans[i][1], other[1] - spans[i][0]
