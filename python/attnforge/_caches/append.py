"""append_kv(): new rows of k and v into a cache."""

import ctypes
from typing import NamedTuple

from .. import _c, _checks, _graphs
from .._arrays import backend_of, contiguous
from .._errors import InvalidError
from .._calls import native
from .._calls.fast import fast
from .._formats import DTYPES, INTEGERS, LOW_BITS, OF_CACHES, numbers_in
from .._graphs import with_op
from .._calls.native import APPEND
from .._library import check, lib, packer
from .._ops import PLACES, OpCall, check_array, tensor
from .._calls.parts import check_rope, view_rope
from .._plans import plan_cache
from .scales import check_scales, strides_of, view_scales, words_of_scales

_PACKED = (None, 0, 1)
_MOST_ROWS = 2**30
_MOST_QUERIES = 2**27  # that seqlen_q may be; of packed rows tokens_q says all
# Words of 8 bytes: a _c.Lengths, a _c.Pages, a _c.Rope, a _c.Cache and a _c.KvScales, one after another.
_PARTS = _c.Lengths, _c.Pages, _c.Rope, _c.Cache, _c.KvScales
_PART_WORDS = tuple(ctypes.sizeof(part) // 8 for part in _PARTS)
_LENGTHS, _PAGES, _ROPE, _CACHE, _SCALES = (sum(_PART_WORDS[:i]) for i in range(5))
_Words = ctypes.c_uint64 * sum(_PART_WORDS)
_HEAD, _pack = packer(_c.Tensors, "q", "k", "v", "o", "rope", "lengths", "pages", "cache", "kv_scales")


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
    k_scale: object
    v_scale: object
    cos: object
    sin: object


@with_op
def append_kv(
    k, v, k_cache, v_cache, used_kv=None, page_table=None, cu_seqlens=None, used_kv_after=None, rope=None, rope_interleaved=False,
    rope_offset=0, q=None, q_out=None, layout="bshd", stream=None, k_scale=None, v_scale=None
):
    """Writes new rows of k and v after those that a cache has; returns q rotated, or None without q.

    k: [batch, new rows, heads_kv, head_dim], v: the same with head_dim_v, with layout="bhsd" heads before rows; any strides with a
    contiguous last dimension. k_cache, v_cache: [batch, capacity, heads_kv, head_dim], in the same layout and dtype; with page_table
    pools [pages, page_size, heads_kv, head_dim]. Or one or both are int8, uint8 (two numbers of 4 bits, head_dim / 2 bytes) or float8,
    and rows are quantised, after the rope, as by quantize_kv().
    k_scale, v_scale: of such caches, float32. [batch, capacity, heads_kv], or pools of pages, one for each row of a head, or with one
    more dimension of one for each 32, 64 or 128 elements: those of new rows are written; of 4 bits with zero points, as quantize_kv()
    has them. One number, [heads_kv] or [batch, heads_kv]: read, and numbers are rows divided by them, rounded to the nearest, at most
    the largest. None: numbers are rows.
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
    after a first call with this dtype, these head dims and alignment, and of one row for each sequence or of more. configure() decides
    as for attention(). Raises InvalidError (a ValueError) for what it cannot take; with ATTNFORGE_CHECK_INPUTS=1 for lengths
    above the capacity, pages that are not there and pages that two sequences write, too.
    """
    arrays = k, v, k_cache, v_cache, q, q_out, used_kv, page_table, cu_seqlens, used_kv_after, k_scale, v_scale
    if _graphs.waiting and _graphs.torch_is_there():
        given = k, v, k_cache, v_cache, used_kv, page_table, cu_seqlens, used_kv_after, rope, rope_interleaved, rope_offset
        return append_kv(*given, q, q_out, layout, stream, k_scale, v_scale)
    told = APPEND, q_out, *arrays, rope, rope_interleaved, rope_offset, layout, stream
    found = fast.native(*told)
    if found is not None and found is not False:
        return None if found is True else found
    values = layout, rope_interleaved, rope_offset, *arrays, rope
    key, ran = fast.again(("append_kv",), values, arrays, rope, stream)
    if ran is None:
        return _append(key, Given(*arrays, *(_pair_of(rope) or (None, None))), layout, rope_interleaved, rope_offset, stream)
    status, result = ran
    if status:
        check(status)
    if found is False and stream is None:
        native.remember_append(key, told, result)
    return result


def prepare_append_kv(
    k, v, k_cache, v_cache, used_kv=None, page_table=None, cu_seqlens=None, used_kv_after=None, rope=None, rope_interleaved=False,
    rope_offset=0, q=None, q_out=None, layout="bshd", stream=None, k_scale=None, v_scale=None
):
    """Has ready what append_kv() of these arguments would compile and load, and runs nothing.

    A CUDA graph can then be captured of the first append_kv() of arrays of these shapes, dtypes and alignments. What the arrays hold is
    neither read nor written. Raises as append_kv().
    """
    arrays = k, v, k_cache, v_cache, q, q_out, used_kv, page_table, cu_seqlens, used_kv_after, k_scale, v_scale
    given = Given(*arrays, *(_pair_of(rope) or (None, None)))
    call, _, _, addresses, _ = _checked(given, layout, rope_interleaved, rope_offset, stream)
    call.prepare(addresses)


prepare_append_kv._torchdynamo_disable = True  # no op of a graph


def _pair_of(rope):
    return None if rope is None else _checks.pair("rope", rope, "a pair (cos, sin) of float32 tables [rows, rope_dim / 2]")


def _append(key, given, layout, rope_interleaved, rope_offset, stream):
    """append_kv() for any arrays, with every check. Remembers the call by `key`, if there is one."""
    epoch = plan_cache.epoch
    call, backend, q_out, addresses, stream = _checked(given, layout, rope_interleaved, rope_offset, stream)
    check(call.launch(addresses, stream))
    if key is not None:
        plan_cache.put_call(key, call, epoch)
    fast.open(backend)
    return q_out


def _checked(given, layout, rope_interleaved, rope_offset, stream):
    """(_Call, backend, q_out, addresses, stream) of arrays that fit together."""
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
    problem = _problem(views, *places, interleaved, offset)
    call = _Call(views, *places, problem, offset, backend if allocates else None)
    return call, backend, given.q_out, Given(*(0 if array is None else array.address for array in views)), stream


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
    scales = view_scales(given, stream)
    cos, sin = view_rope(None if given.cos is None else (given.cos, given.sin), stream)
    return Given(
        *(view(name, rank) for name in ("k", "v")),
        *(view(name, 4, allowed=OF_CACHES) for name in ("k_cache", "v_cache")),
        *(view(name, rank) for name in ("q", "q_out")),
        *(view(name, 1 + (name == "page_table"), allowed=INTEGERS) for name in Given._fields[6:10]),
        *scales,
        cos,
        sin,
    )


def _problem(views, of_rows, of_cache, interleaved, offset):
    """Of the append of these Arrays: the problem's fields but for its alignment. Raises InvalidError unless they fit together. Places of
    batch, rows and heads: of new rows, of caches."""
    first, table, ends, cos = views.k, views.page_table, views.cu_seqlens, views.cos
    batch, new, heads = (0 if place is None else first.shape[place] for place in of_rows)
    if ends is not None:
        batch = ends.shape[0] - 1
    for name, shape in (("used_kv", (batch,)), ("used_kv_after", (batch,)), ("cu_seqlens", (batch + 1,))):
        _check_integers(name, getattr(views, name), shape, first.device)
    head_dim, head_dim_v = first.shape[-1], views.v.shape[-1]
    heads_q = heads if views.q is None else views.q.shape[of_rows[2]]
    of_new = ("k", heads, head_dim), ("v", heads, head_dim_v), ("q", heads_q, head_dim), ("q_out", heads_q, head_dim)
    for name, count, dim in of_new:
        _check_tensor(name, getattr(views, name), _shape(of_rows, batch, new, count, dim), first)
    outer, page_size = (views.k_cache.shape[place] for place in of_cache[:2])
    capacity = page_size
    if table is None:
        outer, page_size = batch, 0
    else:
        _check_integers("page_table", table, (batch, table.shape[1]), first.device)
        capacity *= table.shape[1]
    rows = page_size or capacity
    for name, dim in (("k_cache", head_dim), ("v_cache", head_dim_v)):
        cache = getattr(views, name)
        code = cache.code if cache.code in LOW_BITS else first.code
        check_array(name, cache, _shape(of_cache, outer, rows, heads, dim // numbers_in(cache, 1)), code, "k", first.device)
    scales, caches = (views.k_scale, views.v_scale), (views.k_cache, views.v_cache)
    check_scales(*scales, batch, *caches, of_cache)
    check_rope(cos, views.sin, first.device)
    if cos is not None:
        capacity = min(capacity, cos.shape[0] - offset)
        if capacity < 0:
            raise InvalidError(f"rope_offset={offset} is more than the {cos.shape[0]} rows of the rope's tables")
    return {
        "op": "append",
        "batch": batch,
        "num_heads_q": heads_q,
        "num_heads_kv": heads,
        "seqlen_q": new if ends is None else min(new, _MOST_QUERIES),
        "seqlen_kv": capacity,
        "head_dim": head_dim,
        "head_dim_v": head_dim_v,
        "dtype_q": DTYPES[first.code],
        "dtype_k": DTYPES[views.k_cache.code],
        "dtype_v": DTYPES[views.v_cache.code],
        **words_of_scales(*scales, *caches),
        "lengths": "fixed" if ends is None else "packed",
        "tokens_q": 0 if ends is None else new,
        "page_size": page_size,
        "rope": "none" if cos is None else "interleaved" if interleaved else "half",
        "rope_dim": 0 if cos is None else 2 * cos.shape[1],
        "queries": views.q is not None,
        "lengths_after": views.used_kv_after is not None,
    }


class _Call(OpCall):
    """Without addresses, but for those of words, which are constants of this module."""

    __slots__ = ("_rows", "_words", "_has_scales", "_new_out")

    def __init__(self, views, of_rows, of_cache, problem, offset, allocator):
        """Of Arrays. allocator: the backend that allocates q_out, None if the caller passed it, or there is none."""
        table, cos, first = views.page_table, views.cos, views.k
        super().__init__(first.device, [array for array in views[:6] if array is not None], **problem)
        lengths, pages, tables, cache, scales = (part(ctypes.sizeof(part)) for part in _PARTS)
        if table is not None:
            pages.stride_batch, pages.num_pages = table.strides[0], views.k_cache.shape[of_cache[0]]
        if cos is not None:
            tables.rows, tables.offset = cos.shape[0], offset
        cache.k, cache.v = tensor(views.k_cache, of_cache), tensor(views.v_cache, of_cache)
        for of, name in ((scales.k, "k"), (scales.v, "v")):
            strides = strides_of(getattr(views, f"{name}_scale"), getattr(views, f"{name}_cache"), of_cache)
            of.stride_batch, of.stride_row, of.stride_head = strides
        self._has_scales = problem["kv_scale"] != "none"
        self._words = b"".join(map(bytes, (lengths, pages, tables, cache, scales)))
        rows = views.q, views.k, views.v, views.q_out
        self._rows = tuple(bytes(24) if array is None else bytes(tensor(array, of_rows))[8:] for array in rows)
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

    def recipe(self, marks, low):
        """As that of Call. marks: as Given, 0 where there is none."""
        plan = self._plans.get(low)
        if plan is None:
            return None
        tensors, words = self._argument(marks)
        at = (_LENGTHS, _PAGES, _ROPE, _CACHE, _SCALES)
        return plan, tensors, [part.from_buffer(words, 8 * place) for part, place in zip(_PARTS, at)], ()

    def prepare(self, addresses):
        """Makes the plan of a launch."""
        k, v, k_cache, v_cache, q, out, *_ = addresses
        self._plan((k | v | k_cache | v_cache | q | out) & 15)

    def launch(self, addresses, queue):
        """The status. addresses: as Given, 0 where there is none."""
        k, v, k_cache, v_cache, q, out, *_ = addresses
        low = (k | v | k_cache | v_cache | q | out) & 15
        plan = self._plans.get(low) or self._plan(low)
        tensors, words = self._argument(addresses)
        return lib().attnforge_run(plan.handle, tensors, None, 0, queue)

    def _argument(self, addresses):
        """(the bytes of a _c.Tensors, the words that it points to)."""
        k, v, k_cache, v_cache, q, out, used, table, ends, after, k_scale, v_scale, cos, sin = addresses
        words = _Words.from_buffer_copy(self._words)
        words[_LENGTHS + 1], words[_LENGTHS + 2], words[_PAGES + 1] = ends, used, table
        words[_ROPE + 1], words[_ROPE + 2] = cos, sin
        words[_CACHE + 1], words[_CACHE + 5], words[_CACHE + 9] = k_cache, v_cache, after
        words[_SCALES + 1], words[_SCALES + 5] = k_scale, v_scale
        at = ctypes.addressof(words)
        of_q, of_k, of_v, of_out = self._rows
        parts = at + 8 * _ROPE, at + 8 * _LENGTHS, at + 8 * _PAGES, at + 8 * _CACHE, at + 8 * _SCALES if self._has_scales else 0
        return _pack(_HEAD, q, of_q, k, of_k, v, of_v, out, of_out, *parts), words


def _shape(places, batch, rows, heads, dim):
    """Of a tensor whose batch (None: it has none), rows and heads are at these places."""
    shape = [0] * (3 if places[0] is None else 4)
    for place, size in zip((*places, -1), (batch, rows, heads, dim)):
        if place is not None:
            shape[place] = size
    return tuple(shape)


def _check_tensor(name, array, shape, first):
    if array is not None:
        check_array(name, array, shape, first.code, "k", first.device)


def _check_integers(name, array, shape, device):
    if array is None:
        return
    if tuple(array.shape) != shape or array.device != device or (array.strides[-1] != 1 and shape[-1] > 1):
        raise InvalidError(
            f"{name} has shape {tuple(array.shape)} with strides {tuple(array.strides)} on GPU {array.device}; it must be int32 {shape}, "
            f"contiguous in its last dimension, on GPU {device}"
        )
