"""merge_states(): attention to several parts of the keys as one."""

import ctypes

from . import _c, _checks, _graphs
from ._arrays import backend_of
from ._errors import InvalidError
from ._calls.fast import fast
from ._formats import DTYPES, FP32
from ._graphs import with_op
from ._library import check, lib, packer
from ._ops import PLACES, OpCall, check_array, tensor
from ._plans import plan_cache

_MOST_PARTS = 32
_STATE_WORDS = ctypes.sizeof(_c.State) // 8
_HEAD, _pack = packer(_c.Tensors, "o", "lse", "parts")


@with_op
def merge_states(o, lse, layout="bshd", out=None, stream=None):
    """The attention to the keys of all parts, from that to each part; returns (o, lse).

    o: up to 32 arrays [batch, seqlen, heads, head_dim] of one dtype (float32, float16 or bfloat16), with layout="bhsd" heads before
    seqlen; lse: as many float32 arrays [batch, heads, seqlen], as attention(..., return_lse=True) gives them. Each may also be one
    array whose first dimension is the part. Any strides with a contiguous last dimension. The parts must not share keys: a shared
    prefix and what follows it, the shards of a ring, the steps of a cascade. Rows with lse = -inf have seen no key, and their o is
    not read; where no part has seen one, o is 0 and lse -inf.
    out: where both go, a pair (o, lse), of which o may have another dtype than the parts, and which may be a part's own arrays if
    the dtype is the same; default: new arrays in the parts' dtype. Arrays of frameworks other than torch and cupy need it.
    stream: a CUDA stream as a number; default: the framework's current one.

    Enqueues one kernel and returns at once; may be captured into a CUDA graph after a first call with this head_dim, these dtypes
    and a like number of parts. configure() decides as for attention(). Has no derivative. Raises InvalidError (a ValueError) for what it cannot take.
    """
    if _graphs.waiting and _graphs.torch_is_there():
        return merge_states(o, lse, layout, out, stream)
    o, lse = tuple(o), tuple(lse)
    key, ran = fast.again(("merge_states",), (layout, o, lse, out), o, lse, out, stream)
    if ran is None:
        return _merge(key, o, lse, layout, out, stream)
    status, result = ran
    if status:
        check(status)
    return result


def _merge(key, o, lse, layout, out, stream):
    """merge_states() for any arrays, with every check. Remembers the call by `key`, if there is one."""
    epoch = plan_cache.epoch
    if layout not in PLACES:
        raise InvalidError(f'layout={layout!r} must be "bshd" or "bhsd"')
    if not 1 <= len(o) <= _MOST_PARTS:
        raise InvalidError(f"o has {len(o)} parts; merge_states takes 1 to {_MOST_PARTS}, and results can be merged again")
    if len(lse) != len(o):
        raise InvalidError(f"o has {len(o)} parts and lse has {len(lse)}; give each part both")
    backend = backend_of(o[0])
    parts = [backend.view(f"o[{i}]", part) for i, part in enumerate(o)]
    weights = [backend.view(f"lse[{i}]", part) for i, part in enumerate(lse)]
    first = parts[0]
    if len(first.shape) != 4:
        raise InvalidError(f"o[0] has shape {tuple(first.shape)}; it must be [batch, seqlen, heads, head_dim], or by heads first")
    batch, seqlen, heads = (first.shape[place] for place in PLACES[layout])
    rows = batch, heads, seqlen
    for i, (part, weight) in enumerate(zip(parts, weights)):
        check_array(f"o[{i}]", part, tuple(first.shape), first.code, "o[0]", first.device)
        check_array(f"lse[{i}]", weight, rows, FP32, "o[0]", first.device)
    if stream is None:
        stream = backend.stream(first.device)
    stream = _checks.integer("stream", stream, 0, 2**64 - 1)
    allocates = out is None
    if allocates:
        out = backend.empty(tuple(first.shape), first.code, first.device, stream), backend.empty(rows, FP32, first.device, stream)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise InvalidError("out must be a pair (o, lse)")
    merged, merged_lse = backend.view("the o of out", out[0]), backend.view("the lse of out", out[1])
    check_array("the o of out", merged, tuple(first.shape), merged.code, "o[0]", first.device)
    check_array("the lse of out", merged_lse, rows, FP32, "o[0]", first.device)
    call = _Call(parts, weights, merged, merged_lse, layout, backend if allocates else None)
    check(call.launch([array.address for array in (*parts, *weights, merged, merged_lse)], stream))
    if key is not None:
        plan_cache.put_call(key, call, epoch)
    fast.open(backend)
    return out[0], out[1]


class _Call(OpCall):
    __slots__ = ("_states", "_result", "_parts", "_new")

    def __init__(self, parts, weights, merged, merged_lse, layout, allocator):
        """Of Arrays. allocator: the backend that allocates outputs, None if the caller passed them."""
        places, first = PLACES[layout], parts[0]
        batch, seqlen, heads = (first.shape[place] for place in places)
        sizes = {"batch": batch, "seqlen_q": seqlen, "num_heads_q": heads, "head_dim": first.shape[3]}
        dtypes = {"dtype_q": DTYPES[first.code], "dtype_o": DTYPES[merged.code]}
        super().__init__(first.device, (*parts, merged), op="merge", parts=len(parts), lse=True, **sizes, **dtypes)
        states = [_c.State(tensor(part, places), _rows(weight)) for part, weight in zip(parts, weights)]
        self._states = bytes((_c.State * len(parts))(*states))
        self._result = bytes(tensor(merged, places))[8:], bytes(_rows(merged_lse))[8:]
        self._parts, self._new = len(parts), None
        if allocator is not None and allocator.torch is not None:
            self._new = [allocator.allocator(array.shape, array.code, array.device) for array in (merged, merged_lse)]

    def run(self, o, lse, out, stream):
        """(status, (o, lse)) of a run with plain tensors of torch; None where more must be looked at."""
        queue = fast.queue(self._device, stream, self._new is not None)
        if queue is None:
            return None
        if self._new is not None:
            out = [new() for new in self._new]
        addresses = [array.data_ptr() for array in (*o, *lse, *out)]
        return (self.launch(addresses, queue), tuple(out)) if all(addresses) else None

    def launch(self, addresses, queue):
        """The status. addresses: of the parts' o, the parts' lse, o and lse."""
        count = self._parts
        states = (ctypes.c_uint64 * (_STATE_WORDS * count)).from_buffer_copy(self._states)
        low = addresses[-2]
        for i in range(count):
            low |= addresses[i]
            states[_STATE_WORDS * i], states[_STATE_WORDS * i + 4] = addresses[i], addresses[count + i]
        low &= 15
        plan = self._plans.get(low) or self._plan(low)
        of_o, of_lse = self._result
        tensors = _pack(_HEAD, addresses[-2], of_o, addresses[-1], of_lse, ctypes.addressof(states))
        return lib().attnforge_run(plan.handle, tensors, None, 0, queue)


def _rows(array):
    return _c.Rows(None, *array.strides[:2])
