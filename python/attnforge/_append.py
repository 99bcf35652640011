"""append_kv(): new rows of k and v into a cache."""

import ctypes

from . import _checks
from ._arguments import check_rope, view_rope
from ._arrays import BF16, FP16, FP32, backend_of
from ._context import context
from ._errors import InvalidError
from ._library import AppendStruct, PagesStruct, RopeStruct, TensorStruct, check, lib

_DTYPES = {FP32: b"fp32", FP16: b"fp16", BF16: b"bf16"}
_PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}  # of batch, rows and heads
_PACKED = (None, 0, 1)
_MOST_ROWS = 2**30


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
    # ---- 1. Arrays ----
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
    ints = {name: None if array is None else backend_of(array).view(name, array, stream, integers=True) for name, array in ints.items()}
    if cu_seqlens is not None:
        _check_rank("cu_seqlens", ints["cu_seqlens"], 1)
        batch = ints["cu_seqlens"].shape[0] - 1
    for name, count in (("used_kv", batch), ("used_kv_after", batch), ("cu_seqlens", batch + 1)):
        _check_integers(name, ints[name], (count,), first.device)

    # ---- 2. Shapes that fit together ----
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

    # ---- 3. The launch ----
    if stream is None:
        stream = backend.stream(first.device)
    stream = _checks.integer("stream", stream, 0, 2**64 - 1)
    pages = PagesStruct(ctypes.sizeof(PagesStruct))
    if table is not None:
        pages.table, pages.stride_batch, pages.num_pages = table.address, table.strides[0], outer
    tables = RopeStruct(ctypes.sizeof(RopeStruct))
    if cos is not None:
        tables.cos, tables.sin, tables.rows, tables.offset = cos.address, sin.address, cos.shape[0], offset
    address = {name: None if array is None else array.address for name, array in ints.items()}
    append = AppendStruct(
        struct_size=ctypes.sizeof(AppendStruct),
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
        pages=ctypes.addressof(pages),
        rope_tables=ctypes.addressof(tables),
        cu_seqlens=address["cu_seqlens"],
        used_kv=address["used_kv"],
        used_kv_after=address["used_kv_after"],
    )
    if q is not None:
        append.q, append.rotated_q = _tensor(rows["q"], of_rows), _tensor(rows["q_out"], of_rows)
    check(lib().attnforge_append_kv(context(first.device), ctypes.byref(append), stream))
    return q_out


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
    return TensorStruct(array.address, *(0 if place is None else array.strides[place] for place in places))
