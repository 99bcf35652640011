"""append_kv(): new rows of k and v into a cache."""

import ctypes
from typing import NamedTuple

from . import _c, _checks, _graphs
from ._arrays import backend_of, contiguous
from ._errors import InvalidError
from ._fast import fast
from ._formats import DTYPES as _DTYPES, INTEGERS
from ._graphs import with_op
from ._library import check, context, lib
from ._parts import check_rope, view_rope
from ._plans import plan_cache

DTYPES = tuple(word.encode() for word in _DTYPES)
PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}  # of batch, rows and heads
_PACKED = (None, 0, 1)
_MOST_ROWS = 2**30


class Given(NamedTuple):
    """The arrays of a call, or None; as the caller gave them, as Arrays, or their addresses."""

    k: object
    v: object
    k_cache: object
    v_cache: object
    q: object
    q_out: object
    used_kv: object
    page_table: object
    cu_seqlens: object
    used_kv_after: object
    cos: object
    sin: object


@with_op
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
    arrays = k, v, k_cache, v_cache, q, q_out, used_kv, page_table, cu_seqlens, used_kv_after
    if _graphs.waiting and _graphs.torch_is_there():
        given = k, v, k_cache, v_cache, used_kv, page_table, cu_seqlens, used_kv_after, rope, rope_interleaved, rope_offset
        return append_kv(*given, q, q_out, layout, stream)
    values = layout, rope_interleaved, rope_offset, *arrays, rope
    key, ran = fast.again(("append_kv",), values, arrays, rope, stream)
    if ran is None:
        if rope is not None:
            rope = _checks.pair("rope", rope, "a pair (cos, sin) of float32 tables [rows, rope_dim / 2]")
        return _append(key, Given(*arrays, *(rope or (None, None))), layout, rope_interleaved, rope_offset, stream)
    status, result = ran
    if status:
        check(status)
    return result


def _append(key, given, layout, rope_interleaved, rope_offset, stream):
    """append_kv() for any arrays, with every check. Remembers the call by `key`, if there is one."""
    epoch = plan_cache.epoch
    packed = given.cu_seqlens is not None
    if layout not in PLACES:
        raise InvalidError(f'layout={layout!r} must be "bshd" or "bhsd"')
    if packed and layout != "bshd":
        raise InvalidError(f"layout={layout!r} does not go with cu_seqlens; pass views [tokens, heads, head_dim] of any strides")
    interleaved = _checks.flag("rope_interleaved", rope_interleaved)
    offset = _checks.integer("rope_offset", rope_offset, 0, _MOST_ROWS)
    if given.q is None and given.q_out is not None:
        raise InvalidError("q_out goes with q")
    if given.q is not None and given.cos is None:
        raise InvalidError("q goes with a rope; without one nothing is done to it")
    backend = backend_of(given.k)
    allocates = given.q is not None and given.q_out is None
    views = _views(given, backend, stream)
    first, device = views.k, views.k.device
    if stream is None:
        stream = backend.stream(device)
    stream = _checks.integer("stream", stream, 0, 2**64 - 1)
    if allocates:
        given = given._replace(q_out=backend.empty(tuple(views.q.shape), first.code, device, stream))
        views = views._replace(q_out=backend.view("q_out", given.q_out, stream))
    places = _PACKED if packed else PLACES[layout], PLACES[layout]
    sizes = _sizes(views, *places, offset)
    call = _Call(views, *places, sizes, interleaved, offset, backend if allocates else None)
    check(call.launch(Given(*(0 if array is None else array.address for array in views)), stream))
    if key is not None:
        plan_cache.put_call(key, call, epoch)
    fast.open(backend)
    return given.q_out


def _views(given, backend, stream):
    """Given of Arrays, each of a rank and a dtype that it may have."""

    def view(name, rank, **allowed):
        array = getattr(given, name)
        if array is None:
            return None
        array = (backend_of(array) if allowed else backend).view(name, array, stream, **allowed)
        if len(array.shape) != rank:
            raise InvalidError(f"{name} has shape {tuple(array.shape)}; append_kv needs {rank} dimensions of it here")
        return array

    rank = 4 if given.cu_seqlens is None else 3
    cos, sin = view_rope(None if given.cos is None else (given.cos, given.sin), stream)
    return Given(
        *(view(name, rank) for name in ("k", "v")),
        *(view(name, 4) for name in ("k_cache", "v_cache")),
        *(view(name, rank) for name in ("q", "q_out")),
        *(view(name, 1 + (name == "page_table"), allowed=INTEGERS) for name in Given._fields[6:10]),
        cos,
        sin,
    )


class _Sizes(NamedTuple):
    """Of an Append, by the names of its fields."""

    batch: int
    seqlen_new: int
    tokens: int
    seqlen_kv: int
    page_size: int
    num_heads_kv: int
    num_heads_q: int
    head_dim: int
    head_dim_v: int


def _sizes(views, of_rows, of_cache, offset):
    """The _Sizes of Arrays. Raises InvalidError unless they fit together. Places of batch, rows and heads: of new rows, of caches."""
    first, table, ends = views.k, views.page_table, views.cu_seqlens
    batch, new, heads = (0 if place is None else first.shape[place] for place in of_rows)
    if ends is not None:
        batch = ends.shape[0] - 1
    for name, shape in (("used_kv", (batch,)), ("used_kv_after", (batch,)), ("cu_seqlens", (batch + 1,))):
        _check_integers(name, getattr(views, name), shape, first.device)
    head_dim, head_dim_v = first.shape[-1], views.v.shape[-1]
    heads_q = 0 if views.q is None else views.q.shape[of_rows[2]]
    for name, count, dim in (("k", heads, head_dim), ("v", heads, head_dim_v), ("q", heads_q, head_dim), ("q_out", heads_q, head_dim)):
        _check_tensor(name, getattr(views, name), _shape(of_rows, batch, new, count, dim), first)
    outer, inner = (views.k_cache.shape[place] for place in of_cache[:2])
    capacity = inner
    if table is None:
        outer = batch
    else:
        _check_integers("page_table", table, (batch, table.shape[1]), first.device)
        capacity = table.shape[1] * inner
    for name, dim in (("k_cache", head_dim), ("v_cache", head_dim_v)):
        _check_tensor(name, getattr(views, name), _shape(of_cache, outer, inner, heads, dim), first)
    check_rope(views.cos, views.sin, first.device)
    if views.cos is not None:
        capacity = min(capacity, views.cos.shape[0] - offset)
        if capacity < 0:
            raise InvalidError(f"rope_offset={offset} is more than the {views.cos.shape[0]} rows of the rope's tables")
    rows = (new, 0) if ends is None else (0, new)
    return _Sizes(batch, *rows, capacity, 0 if table is None else inner, heads, heads_q, head_dim, head_dim_v)


class _Call:
    """A call that was checked: its structs without addresses, but for those of words, which are constants of this module."""

    __slots__ = ("_append", "_pages", "_tables", "_device", "_new_out")

    def __init__(self, views, of_rows, of_cache, sizes, interleaved, offset, allocator):
        """Of Arrays. allocator: the backend that allocates q_out, None if the caller passed it, or there is none."""
        table, cos, first = views.page_table, views.cos, views.k
        pages, tables = _c.Pages(ctypes.sizeof(_c.Pages)), _c.Rope(ctypes.sizeof(_c.Rope))
        if table is not None:
            pages.stride_batch, pages.num_pages = table.strides[0], views.k_cache.shape[of_cache[0]]
        if cos is not None:
            tables.rows, tables.offset = cos.shape[0], offset
        append = _c.Append(
            struct_size=ctypes.sizeof(_c.Append),
            dtype=DTYPES[first.code],
            **sizes._asdict(),
            rope=b"none" if cos is None else b"interleaved" if interleaved else b"half",
            rope_dim=0 if cos is None else 2 * cos.shape[1],
            k=tensor(views.k, of_rows),
            v=tensor(views.v, of_rows),
            k_cache=tensor(views.k_cache, of_cache),
            v_cache=tensor(views.v_cache, of_cache),
        )
        if views.q is not None:
            append.q, append.rotated_q = tensor(views.q, of_rows), tensor(views.q_out, of_rows)
        self._append, self._pages, self._tables, self._device = bytes(append), bytes(pages), bytes(tables), first.device
        self._new_out = None
        if allocator is not None and allocator.torch is not None:
            like_q = tuple(views.q.strides) == contiguous(views.q.shape)
            self._new_out = allocator.torch.empty_like if like_q else allocator.allocator(views.q.shape, first.code, first.device)

    def run(self, arrays, rope, stream):
        """(status, q_out) of a run with plain tensors of torch; None where more must be looked at."""
        queue = fast.stream(self._device) if stream is None else fast.queue(self._device, stream, self._new_out is not None)
        if queue is None:
            return None
        k, v, k_cache, v_cache, q, out, *integers = arrays
        if self._new_out is not None:
            out = self._new_out(q)
        addresses = []
        for array in (k, v, k_cache, v_cache, q, out, *integers, *(rope or (None, None))):
            address = 0 if array is None else array.data_ptr()
            if not address and array is not None:  # tensors of modes and transforms of torch
                return None
            addresses.append(address)
        return self.launch(addresses, queue), out

    def launch(self, addresses, queue):
        """The status. addresses: as Given, 0 where there is none."""
        append = _c.Append.from_buffer_copy(self._append)
        pages, tables = _c.Pages.from_buffer_copy(self._pages), _c.Rope.from_buffer_copy(self._tables)
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
        return lib().attnforge_append_kv(context(self._device), ctypes.byref(append), queue)


def tensor(array, places):
    """The struct of an array without its address; places of batch (None: it has none), rows and heads."""
    return _c.Tensor(None, *(0 if place is None else array.strides[place] for place in places))


def _shape(places, batch, rows, heads, dim):
    """Of a tensor whose batch (None: it has none), rows and heads are at these places."""
    shape = [0] * (3 if places[0] is None else 4)
    for place, size in zip((*places, -1), (batch, rows, heads, dim)):
        if place is not None:
            shape[place] = size
    return tuple(shape)


def _check_tensor(name, array, shape, first):
    if array is None:
        return
    if tuple(array.shape) != shape:
        raise InvalidError(f"{name} has shape {tuple(array.shape)}; it must be {shape}, as k and the other arrays say")
    if array.code != first.code:
        raise InvalidError(f"{name} is {DTYPES[array.code].decode()} and k {DTYPES[first.code].decode()}; rows are copied as they are")
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
