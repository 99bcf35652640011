"""append_kv(): new rows of k and v into a cache."""

import ctypes
from typing import NamedTuple

from . import _c, _checks
from ._arrays import BF16, FP16, FP32, INTEGERS, backend_of
from ._context import context
from ._errors import InvalidError
from ._graphs import outside
from ._library import check, lib
from ._parts import check_rope, view_rope

_DTYPES = {FP32: b"fp32", FP16: b"fp16", BF16: b"bf16"}
_PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}  # of batch, rows and heads
_PACKED = (None, 0, 1)
_MOST_ROWS = 2**30


class _Call(NamedTuple):
    """A call that was checked: its structs without addresses, but for those of words, which are constants of this module."""

    append: bytes
    pages: bytes
    tables: bytes
    device: int


_calls = {}  # by the words of a call, and shapes, strides, dtypes and GPUs of its tensors
_torch = None  # the module, once a call has brought its tensors


@outside
def append_kv(
    k,
    v,
    k_cache,
    v_cache,
    used_kv=None,
    page_table=None,
    cu_seqlens=None,
    used_kv_after=None,
    rope=None,
    rope_interleaved=False,
    rope_offset=0,
    q=None,
    q_out=None,
    layout="bshd",
    stream=None,
):
    """Writes new rows of k and v after those that a cache has; returns q rotated, or None without q.

    k: [batch, new rows, heads_kv, head_dim], v: the same with head_dim_v, with layout="bhsd" heads before rows; any strides with a
    contiguous last dimension. k_cache, v_cache: [batch, capacity, heads_kv, head_dim], in the same layout and dtype; with page_table
    pools [pages, page_size, heads_kv, head_dim].
    used_kv: int32 [batch] on the GPU, how many rows each sequence has: new row i of sequence b becomes row used_kv[b] + i of its
    cache. None: none. Rows that do not fit the cache, and those without a page, are not written.
    page_table: int32 [batch, columns] on the GPU, the page that has rows column * page_size and on of a sequence; -1: none.
    cu_seqlens: k, v and q are packed, [tokens, heads, head_dim]: int32 [batch + 1] on the GPU, where each sequence begins, from 0, and
    the last one ends.
    used_kv_after: int32 [batch] where the new lengths are written; may be used_kv itself, which a CUDA graph then moves on with each
    replay.
    rope: (cos, sin), float32 [rows, rope_dim / 2] each: k is rotated by row rope_offset + p for position p, its leading rope_dim
    elements in pairs (i, i + rope_dim / 2), or (2 i, 2 i + 1) with rope_interleaved. Positions without a row in the tables are not
    written.
    q: [batch, new rows, heads_q, head_dim], the queries of these rows, with a rope: rotated as k is, to q_out (which may be q
    itself), or to a new array.
    stream: a CUDA stream as a number; default: the framework's current one.

    Enqueues one kernel and returns at once: lengths and pages are read on the GPU when it runs. May be captured into a CUDA graph
    after a first call with this dtype, these head dims and strides. Raises InvalidError (a ValueError) for what it cannot take; with
    ATTNFORGE_CHECK_INPUTS=1 for lengths above the capacity, pages that are not there and pages that two sequences write, too.
    """
    global _torch
    # ---- 1. A call of torch's tensors like an earlier one ----
    key = None
    if _torch is not None and stream is None:
        try:
            out = _torch.empty_like(q) if q is not None and q_out is None else q_out
            arrays = k, v, k_cache, v_cache, q, out, used_kv, page_table, cu_seqlens, used_kv_after, *(rope or (None, None))
            key, addresses = _key_of(arrays, layout, rope_interleaved, rope_offset)
            call = _calls.get(key)
        except Exception:  # whatever it is, the long way says it
            key = call = None
        if call is not None:
            _launch(call, addresses, _torch._C._cuda_getCurrentRawStream(call.device))
            return out

    # ---- 2. Arrays ----
    if layout not in _PLACES:
        raise InvalidError(f'layout={layout!r} must be "bshd" or "bhsd"')
    if cu_seqlens is not None and layout != "bshd":
        raise InvalidError(f"layout={layout!r} does not go with cu_seqlens; pass views [tokens, heads, head_dim] of any strides")
    of_rows = _PLACES[layout] if cu_seqlens is None else _PACKED
    of_cache = _PLACES[layout]
    interleaved = _checks.flag("rope_interleaved", rope_interleaved)
    offset = _checks.integer("rope_offset", rope_offset, 0, _MOST_ROWS)
    backend = backend_of(k)
    rows = {"k": backend.view("k", k, stream), "v": backend.view("v", v, stream)}
    first = rows["k"]
    _check_rank("k", first, 4 if cu_seqlens is None else 3)
    batch, new, heads = (0 if place is None else first.shape[place] for place in of_rows)
    ints = {"used_kv": used_kv, "cu_seqlens": cu_seqlens, "used_kv_after": used_kv_after, "page_table": page_table}
    ints = {name: None if array is None else backend_of(array).view(name, array, stream, allowed=INTEGERS) for name, array in ints.items()}
    if cu_seqlens is not None:
        _check_rank("cu_seqlens", ints["cu_seqlens"], 1)
        batch = ints["cu_seqlens"].shape[0] - 1
    for name, count in (("used_kv", batch), ("used_kv_after", batch), ("cu_seqlens", batch + 1)):
        _check_integers(name, ints[name], (count,), first.device)

    # ---- 3. Shapes that fit together ----
    head_dim, head_dim_v = first.shape[-1], rows["v"].shape[-1]
    if q is None and q_out is not None:
        raise InvalidError("q_out goes with q")
    if q is not None and rope is None:
        raise InvalidError("q goes with a rope; without one nothing is done to it")
    heads_q = 0
    if q is not None:
        rows["q"] = backend.view("q", q, stream)
        _check_rank("q", rows["q"], len(first.shape))
        heads_q = rows["q"].shape[of_rows[2]]
        if stream is None:
            stream = backend.stream(first.device)
        if q_out is None:
            q_out = backend.empty(tuple(rows["q"].shape), first.code, first.device, stream)
        rows["q_out"] = backend.view("q_out", q_out, stream)
    wanted = {"k": (heads, head_dim), "v": (heads, head_dim_v), "q": (heads_q, head_dim), "q_out": (heads_q, head_dim)}
    for name, array in rows.items():
        _check_tensor(name, array, _shape(of_rows, batch, new, *wanted[name]), first)
    caches = {"k_cache": backend.view("k_cache", k_cache, stream), "v_cache": backend.view("v_cache", v_cache, stream)}
    _check_rank("k_cache", caches["k_cache"], 4)
    outer, inner = (caches["k_cache"].shape[place] for place in of_cache[:2])
    table = ints["page_table"]
    if table is None:
        capacity, outer = inner, batch
    else:
        _check_rank("page_table", table, 2)
        columns = table.shape[1]
        _check_integers("page_table", table, (batch, columns), first.device)
        capacity = columns * inner
    for name, dim in (("k_cache", head_dim), ("v_cache", head_dim_v)):
        _check_tensor(name, caches[name], _shape(of_cache, outer, inner, heads, dim), first)
    cos, sin = view_rope(rope, stream)
    check_rope(cos, sin, first.device)
    if cos is not None:
        capacity = min(capacity, cos.shape[0] - offset)
        if capacity < 0:
            raise InvalidError(f"rope_offset={offset} is more than the {cos.shape[0]} rows of the rope's tables")

    # ---- 4. The launch ----
    if stream is None:
        stream = backend.stream(first.device)
    stream = _checks.integer("stream", stream, 0, 2**64 - 1)
    pages = _c.Pages(ctypes.sizeof(_c.Pages))
    if table is not None:
        pages.stride_batch, pages.num_pages = table.strides[0], outer
    tables = _c.Rope(ctypes.sizeof(_c.Rope))
    if cos is not None:
        tables.rows, tables.offset = cos.shape[0], offset
    append = _c.Append(
        struct_size=ctypes.sizeof(_c.Append),
        dtype=_DTYPES[first.code],
        batch=batch,
        seqlen_new=0 if cu_seqlens is not None else new,
        tokens=new if cu_seqlens is not None else 0,
        seqlen_kv=capacity,
        page_size=0 if table is None else inner,
        num_heads_kv=heads,
        num_heads_q=heads_q,
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        rope=b"none" if cos is None else b"interleaved" if interleaved else b"half",
        rope_dim=0 if cos is None else 2 * cos.shape[1],
        k=_tensor(rows["k"], of_rows),
        v=_tensor(rows["v"], of_rows),
        k_cache=_tensor(caches["k_cache"], of_cache),
        v_cache=_tensor(caches["v_cache"], of_cache),
    )
    if q is not None:
        append.q, append.rotated_q = _tensor(rows["q"], of_rows), _tensor(rows["q_out"], of_rows)
    call = _Call(bytes(append), bytes(pages), bytes(tables), first.device)
    viewed = rows["k"], rows["v"], caches["k_cache"], caches["v_cache"], rows.get("q"), rows.get("q_out")
    viewed += ints["used_kv"], table, ints["cu_seqlens"], ints["used_kv_after"], cos, sin
    _launch(call, tuple(0 if array is None else array.address for array in viewed), stream)
    if key is not None:
        if len(_calls) >= 4096:
            _calls.clear()
        _calls[key] = call
    if backend.torch is not None:
        _torch = backend.torch
    return q_out


def _key_of(arrays, layout, interleaved, offset):
    """(key, addresses) of a call whose arrays are plain torch tensors, or None. Raises TypeError for others."""
    kind, grad = _torch.Tensor, _torch.is_grad_enabled()
    if _torch.autograd.forward_ad._current_level >= 0:
        raise TypeError
    key, addresses = [layout, interleaved, offset], []
    for array in arrays:
        if array is None:
            key.append(None)
            addresses.append(0)
            continue
        address = array.data_ptr()
        if type(array) is not kind or not address or array.is_neg() or grad and array.requires_grad:
            raise TypeError
        key += (array.shape, array.stride(), array.dtype, array.get_device())
        addresses.append(address)
    return tuple(key), addresses


def _launch(call, addresses, stream):
    """A checked call with these addresses, in the order of _key_of(); 0: there is none."""
    append = _c.Append.from_buffer_copy(call.append)
    pages, tables = _c.Pages.from_buffer_copy(call.pages), _c.Rope.from_buffer_copy(call.tables)
    append.pages, append.rope_tables = ctypes.addressof(pages), ctypes.addressof(tables)
    (
        append.k.data,
        append.v.data,
        append.k_cache.data,
        append.v_cache.data,
        append.q.data,
        append.rotated_q.data,
        append.used_kv,
        pages.table,
        append.cu_seqlens,
        append.used_kv_after,
        tables.cos,
        tables.sin,
    ) = addresses
    check(lib().attnforge_append_kv(context(call.device), ctypes.byref(append), stream))


def _shape(places, batch, rows, heads, dim):
    """Of a tensor whose batch (None: it has none), rows and heads are at these places."""
    shape = [0] * (3 if places[0] is None else 4)
    for place, size in zip((*places, -1), (batch, rows, heads, dim)):
        if place is not None:
            shape[place] = size
    return tuple(shape)


def _check_rank(name, array, rank):
    if len(array.shape) != rank:
        raise InvalidError(f"{name} has shape {tuple(array.shape)}; append_kv needs {rank} dimensions of it here")


def _check_tensor(name, array, shape, first):
    if tuple(array.shape) != shape:
        raise InvalidError(f"{name} has shape {tuple(array.shape)}; it must be {shape}, as k and the other arrays say")
    if array.code != first.code:
        raise InvalidError(f"{name} is {_DTYPES[array.code].decode()} and k {_DTYPES[first.code].decode()}; rows are copied as they are")
    if array.device != first.device:
        raise InvalidError(f"{name} is on GPU {array.device} and k on GPU {first.device}")
    if array.shape[-1] > 1 and array.strides[-1] != 1:
        raise InvalidError(f"{name} has a stride of {array.strides[-1]} elements in its last dimension; it must be 1")


def _check_integers(name, array, shape, device):
    if array is None:
        return
    if tuple(array.shape) != shape or array.device != device or (array.strides[-1] != 1 and shape[-1] > 1):
        raise InvalidError(
            f"{name} has shape {tuple(array.shape)} with strides {tuple(array.strides)} on GPU {array.device}; it must be int32 {shape}, "
            f"contiguous in its last dimension, on GPU {device}"
        )


def _tensor(array, places):
    return _c.Tensor(None, *(0 if place is None else array.strides[place] for place in places))
