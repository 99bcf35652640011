"""merge_states(): attention to several parts of the keys as one."""

import ctypes

from . import _c, _checks
from ._arrays import BF16, FP16, FP32, backend_of
from ._context import context
from ._errors import InvalidError
from ._graphs import outside
from ._library import check, lib

_DTYPES = {FP32: b"fp32", FP16: b"fp16", BF16: b"bf16"}
_MOST_PARTS = 32
_PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}  # of batch, seqlen and heads


@outside
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

    Enqueues one kernel and returns at once; may be captured into a CUDA graph after a first call with this head_dim and these
    dtypes. Has no derivative. Raises InvalidError (a ValueError) for what it cannot take.
    """
    if layout not in _PLACES:
        raise InvalidError(f'layout={layout!r} must be "bshd" or "bhsd"')
    o, lse = tuple(o), tuple(lse)
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
    batch, seqlen, heads = (first.shape[place] for place in _PLACES[layout])
    rows = batch, heads, seqlen
    for i, (part, weight) in enumerate(zip(parts, weights)):
        _check_array(f"o[{i}]", part, tuple(first.shape), first.code, first.device)
        _check_array(f"lse[{i}]", weight, rows, FP32, first.device)
    if stream is None:
        stream = backend.stream(first.device)
    stream = _checks.integer("stream", stream, 0, 2**64 - 1)
    if out is None:
        out = backend.empty(tuple(first.shape), first.code, first.device, stream), backend.empty(rows, FP32, first.device, stream)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise InvalidError("out must be a pair (o, lse)")
    merged, merged_lse = backend.view("the o of out", out[0]), backend.view("the lse of out", out[1])
    _check_array("the o of out", merged, tuple(first.shape), merged.code, first.device)
    _check_array("the lse of out", merged_lse, rows, FP32, first.device)

    parts_o = (_c.Tensor * len(parts))(*(_tensor(part, layout) for part in parts))
    parts_lse = (_c.Rows * len(parts))(*(_rows(weight) for weight in weights))
    merge = _c.Merge(
        ctypes.sizeof(_c.Merge),
        _DTYPES[first.code],
        _DTYPES[merged.code],
        batch,
        seqlen,
        heads,
        first.shape[3],
        len(parts),
        ctypes.addressof(parts_o),
        ctypes.addressof(parts_lse),
        _tensor(merged, layout),
        _rows(merged_lse),
    )
    check(lib().attnforge_merge_states(context(first.device), ctypes.byref(merge), stream))
    return out[0], out[1]


def _check_array(name, array, shape, code, device):
    if tuple(array.shape) != tuple(shape):
        raise InvalidError(f"{name} has shape {tuple(array.shape)}; it must be {tuple(shape)}")
    if array.code != code:
        raise InvalidError(f"{name} is {_DTYPES[array.code].decode()}; it must be {_DTYPES[code].decode()}")
    if array.device != device:
        raise InvalidError(f"{name} is on GPU {array.device} and o[0] on GPU {device}")
    if array.shape[-1] > 1 and array.strides[-1] != 1:
        raise InvalidError(f"{name} has a stride of {array.strides[-1]} elements in its last dimension; it must be 1")


def _tensor(array, layout):
    return _c.Tensor(array.address, *(array.strides[place] for place in _PLACES[layout]))


def _rows(array):
    return _c.Rows(array.address, *array.strides[:2])
