"""A call of attention() that was checked: its problem, its plans, and the argument of the launch but for the addresses."""

import struct
import warnings
from copy import copy

from .. import _c
from .arguments import alignment_of, problem_of_arrays, used_strides
from .._arrays import contiguous
from .._errors import InvalidError, PerformanceWarning
from .fast import fast
from .._formats import DTYPES, FP32, ITEM_BYTES, LOW_BITS, Q4_0, Q8_0, numbers_in
from .._library import packer
from .marks import mark_rows
from .overlap import overlap, span
from .parts import NAMES, NO_ADDRESSES, PartArrays, Tail, addresses_of, has_of_run, of_run_again, structs_in, words_of_arrays
from .._plans import plan_of

_NAMES = ("q", "k", "v", "out", "the lse of out", *NAMES)
_HEAD, _pack_bare = packer(_c.Tensors, "q", "k", "v", "o", "lse")  # of a call without parts
_, _pack = packer(_c.Tensors, "q", "k", "v", "o", "lse", *Tail.MEMBERS)


class Call:
    """Everything of a call but addresses and stream. Addresses are of q, k, v, o, lse, and of PartArrays; 0 where there is none.

    Immutable but for what it remembers of addresses; thread-safe.
    """

    __slots__ = (
        "device",
        "options",
        "_new_o",  # of q, outputs for the current stream, where the framework is torch
        "_new_lse",
        "_has_lse",
        "_has_parts",
        "_has_of_run",
        "_may_convert",  # under torch.autocast
        "_arrays",
        "_batch",
        "_words",
        "_tail",
        "_bits",
        "_most_alignment",
        "_plans",
        "_pairs",
        "_around_o",
        "_apart",
        "_fixed",
    )

    def __init__(self, arrays, options, batch, allocator):
        """arrays: None where there is none. allocator: the backend that allocates the outputs, None if the caller passed out=."""
        q, k, v, o, lse = arrays[:5]
        parts = PartArrays(*arrays[5:])
        # Without owners: a call that is remembered keeps no memory alive.
        self._arrays = tuple(array and array._replace(address=0, owner=None) for array in arrays)
        self.options, self.device, self._batch = options, q.device, batch
        self._has_lse, self._has_parts = options.lse, any(part is not None for part in parts)
        self._has_of_run = has_of_run(options)
        self._may_convert = FP32 in (q.code, k.code, v.code) and allocator is not None and not options.tf32
        used = [used_strides(array) for array in (q, k, v, o)]
        self._bits = used[0].bits | used[1].bits | used[2].bits | used[3].bits
        # No family that asks for less than 16 reads through TMA.
        self._most_alignment = 16 if all(each.tma for each in used[:3]) else 8
        places = options.places
        self._words = words_of_arrays(parts, options, batch, q, k, v)
        self._tail = Tail(parts, options, batch, q, k)
        self._fixed = (
            *(
                struct.pack("=qqq", *(0 if i is None else numbers_in(array, array.strides[i]) for i in of))
                for array, of in ((q, places), (k, options.places_kv), (v, options.places_kv), (o, places))
            ),
            struct.pack("=qq", *((0, 0) if lse is None else (0, *lse.strides)[-3:-1])),
        )
        self._plans = {}  # by the low four bits of the addresses
        self._pairs = self._find_pairs() if allocator is None else ()
        self._around_o = tuple(bound for pair in self._pairs if pair[0] == 3 and pair[1] < 3 for bound in pair[2:])
        self._apart = set()
        self._new_o = self._new_lse = None
        if allocator is not None and allocator.torch is not None:
            like_q = q.code == o.code and tuple(q.shape) == tuple(o.shape) and tuple(q.strides) == contiguous(q.shape)
            self._new_o = allocator.torch.empty_like if like_q else allocator.allocator(o.shape, o.code, o.device)
            self._new_lse = lse and allocator.allocator(lse.shape, lse.code, lse.device)

    def argument(self, q, k, v, o, lse, parts, offset=0, **of_run):
        """The bytes of a _c.Tensors with these addresses, those of parts as PartArrays, and what they point to, to be kept until the
        run is enqueued. The rest: Tail.pack().
        """
        of_q, of_k, of_v, of_o, of_lse = self._fixed
        tail, kept = self._tail.pack(parts, offset, **of_run)
        return _pack(_HEAD, q, of_q, k, of_k, v, of_v, o, of_o, lse, of_lse, *tail), kept

    def run(self, q, k, v, out, stream, offset, options):
        """(status, o or (o, lse)) of a run with plain tensors of torch; None where check_apart(), plan() or conversions have something
        to add to earlier calls. options: by their names."""
        if self._may_convert and fast.autocasts():
            return None
        if offset and not _is_offset(offset):
            return None
        queue = fast.stream(self.device) if stream is None else fast.queue(self.device, stream, out is None)
        if queue is None:
            return None
        lse = None
        if out is not None:
            result = out
            o, lse = out if self._has_lse else (out, None)
        elif self._has_lse:
            result = o, lse = self._new_o(q), self._new_lse()
        else:
            result = o = self._new_o(q)
        at_q, at_k, at_v, at_o = q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr()
        if not (at_q and at_k and at_v and at_o):  # tensors of modes and transforms of torch
            return None
        plan = self._plans.get((at_q | at_k | at_v | at_o) & 15)
        if plan is None:
            return None
        at_lse = 0 if lse is None else lse.data_ptr()
        parts = addresses_of(options) if self._has_parts else None
        of_run = of_run_again(options, self.device) if self._has_of_run else {}
        if of_run is None:
            return None
        if self._pairs and (at_lse or parts is not None or self._is_close(at_q, at_k, at_v, at_o)):
            self.check_apart((at_q, at_k, at_v, at_o, at_lse, *(parts or NO_ADDRESSES)))
        if parts is None and not of_run:
            of_q, of_k, of_v, of_o, of_lse = self._fixed
            tensors = _pack_bare(_HEAD, at_q, of_q, at_k, of_k, at_v, of_v, at_o, of_o, at_lse, of_lse)
        else:
            tensors, kept = self.argument(at_q, at_k, at_v, at_o, at_lse, parts or NO_ADDRESSES, offset, **of_run)
        if plan.workspace_bytes == 0:
            return fast.run(plan.handle, tensors, None, fast.NO_BYTES, fast.queues[queue]), result
        if queue != fast.stream(self.device):  # the workspace too
            return None
        memory, workspace, size = fast.scratch(plan.workspace_bytes, self.device)
        return fast.run(plan.handle, tensors, workspace, size, fast.queues[queue]), result

    def of_any_rows(self):
        """The same of packed tensors, with marks for how many rows they have: no stride but lse's is of that many."""
        call = copy(self)
        call._tail = self._tail.of_any_rows()
        if self._has_lse:
            call._fixed = *self._fixed[:4], struct.pack("=qq", 0, mark_rows())
        return call

    def recipe(self, marks, options, low, any_rows=False):
        """What the shim takes to run such a call of torch: (plan, bytes of a _c.Tensors with marks for addresses, the structs that these
        point to, pairs that may not share memory, by marks). None where a run has more to look at. marks: of q, k, v, o and lse. options:
        by their names, with marks' own kind of tensors. low: of the addresses, as for plan(). any_rows: the same for packed tensors of other
        rows."""
        plan = self._plans.get(low)
        if plan is None or self._may_convert:
            return None
        if any_rows and self.options.parts.packed:
            return self.of_any_rows().recipe(marks, options, low)
        of_run = of_run_again(options, self.device) if self._has_of_run else {}
        if of_run is None:
            return None
        q, k, v, o, lse = marks
        parts = addresses_of(options) if self._has_parts else NO_ADDRESSES
        tensors, kept = self.argument(q, k, v, o, lse if self._has_lse else 0, parts, **of_run)
        of_arrays = (*marks, *parts)
        pairs = [(of_arrays[output], of_arrays[other], below, above) for output, other, below, above in self._pairs]
        return plan, tensors, structs_in(kept), pairs

    def _is_close(self, q, k, v, o):
        """Whether o may share memory with an input."""
        below_q, above_q, below_k, above_k, below_v, above_v = self._around_o
        return below_q < o - q < above_q or below_k < o - k < above_k or below_v < o - v < above_v

    def _find_pairs(self):
        """(output, other, below, above): they may share memory if below < address of output - address of other < above."""
        spans = [array and span(array.shape, array.strides, ITEM_BYTES[array.code]) for array in self._arrays]
        pairs = []
        of_parts = range(5, len(spans))
        for output, others in ((3, (0, 1, 2, *of_parts)), (4, (0, 1, 2, 3, *of_parts))):
            for other in others:
                a, b = spans[output], spans[other]
                if a is not None and b is not None and a[0] != a[1] and b[0] != b[1]:
                    pairs.append((output, other, b[0] - a[1], b[1] - a[0]))
        return tuple(pairs)

    def check_apart(self, addresses):
        """Raises InvalidError if an output shares memory with another array; addresses as in `arrays`."""
        close = tuple(
            (a, b, addresses[a] - addresses[b]) for a, b, below, above in self._pairs if below < addresses[a] - addresses[b] < above
        )
        if not close or close in self._apart:
            return
        for a, b, distance in close:
            first, second = (
                (address, array.shape, array.strides, ITEM_BYTES[array.code])
                for address, array in ((distance, self._arrays[a]), (0, self._arrays[b]))
            )
            if overlap(first, second):
                raise InvalidError(
                    f"{_NAMES[a]} shares memory with {_NAMES[b]}, but kernels read and write in any order; give it memory of its own"
                )
        if len(self._apart) >= 64:
            self._apart.clear()
        self._apart.add(close)  # rows between the rows of another array, as in packed tensors

    def plan(self, addresses):
        """The plan for arrays at these addresses."""
        low = (addresses[0] | addresses[1] | addresses[2] | addresses[3]) & 15
        plan = self._plans.get(low)
        if plan is not None:
            return plan
        alignment = min(self._most_alignment, alignment_of(self._bits | low))
        if alignment < 2:
            raise InvalidError(f"rows begin on odd bytes, here of {self._less_aligned(2, addresses)}; they must begin on even ones (a clone() does)")
        q, k, v, o = self._arrays[:4]
        problem = problem_of_arrays(q, k, v, o.code, self.options, alignment, self._batch, self._words)
        plan = plan_of(problem, self.device, lambda plan: self._warn_of_cliffs(plan, addresses))
        if not plan.passing:
            self._plans[low] = plan
        return plan

    def _less_aligned(self, least, addresses):
        """The names of arrays whose rows do not begin on multiples of `least` bytes."""
        return " and ".join(
            f"{name} (address {address:#x}, strides {tuple(array.strides)})"
            for name, address, array in zip(_NAMES, addresses, self._arrays[:4])
            if alignment_of(address | used_strides(array).bits) < least
        )

    def _warn_of_cliffs(self, plan, addresses):
        """One warning for a problem that the caller could have served by tensor cores with another dtype or address."""
        if plan.family not in _SLOW_FAMILIES:
            return
        problem = plan.problem
        low = tuple(DTYPES[code] for code in (*LOW_BITS, Q8_0, Q4_0))
        dtypes = {"q": problem.dtype_q, "k": problem.dtype_k, "v": problem.dtype_v}
        dtypes = {name: dtype for name, dtype in dtypes.items() if dtype not in low}
        if len(set(dtypes.values())) > 1:
            mixed = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
            advice = (
                f"{mixed}: no tensor-core kernel takes q, k and v of different dtypes, and it may be 60 times slower; convert them "
                "to one"
            )
        elif problem.dtype_q in low:
            advice = (
                f"q of {problem.dtype_q} is served by tensor cores of Hopper alone, with head dims that are multiples of 16 up to 256, rows "
                "that begin on multiples of 16 bytes, and neither softcap, score, mask nor block_mask; it may be 100 times slower: convert q, k and v to bfloat16"
            )
        elif problem.alignment_bytes < 4:
            advice = (
                f"rows on odd multiples of 2 bytes, here of {self._less_aligned(4, addresses)}, are served by no tensor-core kernel, and it may be "
                "20 times slower; begin arrays and rows on multiples of 16 bytes (a clone() does)"
            )
        else:
            return
        warnings.warn(f"attention runs {plan.family} for \"{problem}\": {advice}", PerformanceWarning, stacklevel=7)


def _is_offset(offset):
    return type(offset) is int and -(2**63) <= offset < 2**63


# Without tensor cores.
_SLOW_FAMILIES = ("fwd_naive", "fwd_flash_scalar", "fwd_flash_vec")
