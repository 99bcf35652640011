"""The optional parts of a call, one by one and all in a row: what attention() takes of them, their arrays and what must hold of
these, what the problem says of them, and their structs in a run. What walks rows names no part."""

import ctypes
from collections import namedtuple
from copy import copy

from .. import _c, _checks
from .._arrays import backend_of
from .._block_mask import block_words_of
from .._errors import InvalidError
from .._formats import FP32, INTEGERS
from .code import argument_again
from .lengths import check_lengths, lengths_of, longest_of, packed_bounds, packed_rows, view_lengths
from .marks import mark_rows
from .._options import OF_HEADS, Words
from .._problem import DTYPES
from .._caches.scales import SCALE_NAMES, check_q_scale, check_scales, strides_of_all, view_scales, words_of_scales

# ---- What a call has of all parts ----


# None where there is none; of_q, of_kv: lengths.
_BY_NAME = *SCALE_NAMES, "q_scale", *OF_HEADS
_ARRAYS = "cos", "sin", "of_q", "of_kv", "page_table", *_BY_NAME
PartArrays = namedtuple("PartArrays", _ARRAYS, defaults=(None,) * len(_ARRAYS))
# As messages call them.
NAMES = ("cos of rope", "sin of rope", "the lengths of q", "the lengths of k", *_ARRAYS[4:])


def view(given, stream):
    """(what the problem calls the kind of its lengths, PartArrays) of Options. Raises InvalidError for what is no array, or not of this part."""
    kind, of_q, of_kv = lengths_beside(given.page_table, given.cu_seqlens, given.used_kv)
    page_table = view_pages(given.page_table, stream)
    tables = view_rope(given.rope, stream)
    lengths = view_lengths(kind, of_q, of_kv, stream, page_table is not None)
    scales = view_scales(given, stream, (*SCALE_NAMES, "q_scale"))
    of_heads = (view_of_heads(name, getattr(given, name), stream) for name in OF_HEADS)
    return kind, PartArrays(*tables, *lengths, page_table, *scales, *of_heads)


def words_of(given, code, kind, arrays):
    """Words of Options, of the Code in them and of what view() gave."""
    return Words(
        _checks.flag("rope_interleaved", given.rope_interleaved),
        kind,
        *longest_of(kind, given.max_seqlen),
        code.texts,
        block_words_of(given.block_mask),
        tuple(name for name in OF_HEADS if getattr(arrays, name) is not None),
        columns_of(arrays.page_table),
    )


def check(arrays, options, q, k, v):
    """The number of sequences. Raises InvalidError unless PartArrays fit to the arrays of q, k and v."""
    check_block_mask(options.parts.blocks, options, q, k)
    check_rope(arrays.cos, arrays.sin, q.device)
    for name in OF_HEADS:
        check_of_heads(name, getattr(arrays, name), q, options.places)
    batch = check_sequences(arrays.of_q, arrays.of_kv, options, q, arrays.cos)
    check_pages(arrays.page_table, batch, k, v, options.places_kv)
    check_scales(arrays.k_scale, arrays.v_scale, batch, k, v, options.places_kv, q)
    check_q_scale(arrays.q_scale, arrays.k_scale, batch, q, k, options.places_kv)
    return batch


def addresses_of(options):
    """The addresses of PartArrays, of options by their names that are torch's tensors."""
    cos, sin = options.get("rope") or (None, None)
    table = options.get("page_table")
    _, of_q, of_kv = lengths_beside(table, options.get("cu_seqlens"), options.get("used_kv"))
    arrays = [cos, sin, of_q, of_kv, table]
    for name in _BY_NAME:
        arrays.append(options.get(name))
    return [0 if x is None else x.data_ptr() for x in arrays]


def of_run(given, code, backend, device, queue, more_words=()):
    """What Tail.pack() takes of a call's parts beside PartArrays, on the GPU in the order of the queue. more_words: of arrays that get
    a gradient."""
    blocks = None if given.block_mask is None else given.block_mask.on_gpu(backend, device, queue)
    return {"block_mask": blocks, "code": code.argument(more_words)}


def has_of_run(options):
    """Whether runs of a call with CheckedOptions have anything of these."""
    return options.parts.blocks is not None or options.parts.code[2] != ""


def of_run_again(options, device, more_words=()):
    """of_run() of a call like an earlier one, of options by their names; None where more must be looked at."""
    blocks = options.get("block_mask")
    if blocks is not None and (blocks := blocks.uploaded(device)) is None:
        return None
    return {"block_mask": blocks, "code": argument_again(options.get("args"), more_words)}


def structs_in(kept):
    """Of what pack() says is to be kept, what a run's struct points to."""
    return [each for each in kept if isinstance(each, (ctypes.Structure, ctypes.Array))]


def words_of_arrays(arrays, options, batch, q, k, v=None):
    """Of the problem, by the names of its fields: sizes of sequences too, of packed ones bounds."""
    words = options.parts
    seqlen_q, seqlen_kv = q.shape[options.places[1]], k.shape[options.places_kv[1]]
    tokens_q = tokens_kv = page_size = 0
    if words.packed:
        seqlen_q, tokens_q = packed_bounds(batch, words.longest_q, seqlen_q)
    if words.pages:
        seqlen_kv, page_size = words.pages * seqlen_kv, seqlen_kv
    elif words.packed:
        seqlen_kv, tokens_kv = packed_bounds(batch, words.longest_kv, seqlen_kv)
    of_problem = {
        "seqlen_q": seqlen_q,
        "seqlen_kv": seqlen_kv,
        "lengths": words.lengths,
        "tokens_q": tokens_q,
        "tokens_kv": tokens_kv,
        "page_size": page_size,
        **dict(zip(("score", "mask", "args"), words.code)),
    }
    for name in words.of_heads:
        of_problem.update(OF_HEADS[name])
    if arrays.k_scale is not None or arrays.v_scale is not None:
        of_problem.update(words_of_scales(arrays.k_scale, arrays.v_scale, k, v, q))
    if arrays.cos is not None and arrays.cos.shape[1]:
        of_problem["rope"] = "interleaved" if words.rope_interleaved else "half"
        of_problem["rope_dim"] = 2 * arrays.cos.shape[1]
    if words.blocks is not None:
        of_problem.update(words.blocks.of_problem())
    return of_problem


# ---- The end of a run's struct ----

NO_ADDRESSES = (0,) * len(NAMES)
_ROPE_BYTES, _LENGTHS_BYTES, _PAGES_BYTES, _LISTS_BYTES, _SCALES_BYTES = map(
    ctypes.sizeof, (_c.Rope, _c.Lengths, _c.Pages, _c.BlockMaskLists, _c.KvScales)
)


class Tail:
    """What all runs of a call have in it; immutable."""

    __slots__ = ("_rope_rows", "_has_lengths", "_tokens", "_most", "_of_pages", "_of_scales")
    # Of _c.Tensors.
    MEMBERS = "rope", "lengths", "block_mask", "pages", "gradients", "kv_scales", "code_arguments", *OF_HEADS

    def __init__(self, arrays, options, batch, q, k):
        words = options.parts
        self._rope_rows = None if arrays.cos is None else arrays.cos.shape[0]
        self._has_lengths, self._tokens, self._most = words.rows_may_not_count, (0, 0), (0, 0)
        if words.packed:
            of_keys = 0 if words.pages else packed_rows(batch, words.longest_kv, k.shape[0])
            self._tokens = packed_rows(batch, words.longest_q, q.shape[0]), of_keys
            self._most = batch * words.longest_q, batch * words.longest_kv
        table = arrays.page_table
        self._of_pages = None if table is None else (table.strides[0], k.shape[options.places_kv[0]])
        scales = arrays.k_scale, arrays.v_scale, arrays.q_scale
        self._of_scales = None if scales[:2] == (None, None) else strides_of_all(*scales, q, k, options)

    def of_any_rows(self):
        """The same of packed tensors, with marks for how many rows they have."""
        tail = copy(self)
        tail._tokens = tuple([count and mark_rows(i == 1, most) for i, (count, most) in enumerate(zip(self._tokens, self._most))])
        return tail

    def pack(self, addresses, offset=0, block_mask=None, code=None, gradients=0):
        """(the words of _c.Tensors after lse, the structs they point to, to be kept until the run is enqueued).

        addresses: as PartArrays, 0 where there is none. block_mask: None, or BlockMask.on_gpu(). code: None, or the words of the
        arguments of code as a ctypes array. gradients: the address of a _c.Gradients.
        """
        cos, sin, of_q, of_kv, table, k_scale, v_scale, q_scale, *of_heads = addresses
        rope = lengths = lists = pages = scales = None
        at_rope = at_lengths = at_lists = at_code = at_pages = at_scales = 0
        if self._rope_rows is not None:
            rope = _c.Rope(_ROPE_BYTES, cos, sin, self._rope_rows, offset)
            at_rope = ctypes.addressof(rope)
        if self._has_lengths:
            lengths = _c.Lengths(_LENGTHS_BYTES, of_q, of_kv, *self._tokens)
            at_lengths = ctypes.addressof(lengths)
        if block_mask is not None:
            lists = _c.BlockMaskLists(_LISTS_BYTES, *block_mask[:4])
            at_lists = ctypes.addressof(lists)
        if code is not None:
            at_code = ctypes.addressof(code)
        if self._of_pages is not None:
            pages = _c.Pages(_PAGES_BYTES, table, *self._of_pages)
            at_pages = ctypes.addressof(pages)
        if self._of_scales is not None:
            at = zip((k_scale, v_scale, q_scale), self._of_scales)
            scales = _c.KvScales(_SCALES_BYTES, *((address, *strides) for address, strides in at))
            at_scales = ctypes.addressof(scales)
        tail = at_rope, at_lengths, at_lists, at_pages, gradients, at_scales, at_code, *of_heads
        return tail, (rope, lengths, lists, block_mask, code, pages, scales)


# ---- One by one ----


def check_block_mask(words, options, q, k):
    """Raises InvalidError unless a block mask is of the rows of q and k."""
    if words is None:
        return
    if options.parts.packed:
        raise InvalidError("block_mask does not go with cu_seqlens; pass padded tensors with used_kv")
    if options.parts.pages:
        raise InvalidError("block_mask does not go with page_table; a mask of blocks wants k and v in one piece")
    row = options.places[1]
    if words.seqlen != (q.shape[row], k.shape[row]):
        raise InvalidError(f"block_mask is of seqlen {words.seqlen}; q has {q.shape[row]} rows and k {k.shape[row]}")


def view_rope(rope, stream):
    """Arrays of the tables cos and sin; (None, None) without a rope."""
    if rope is None:
        return None, None
    cos, sin = _checks.pair("rope", rope, "a pair (cos, sin) of float32 tables [rows, rope_dim / 2]")
    return backend_of(cos).view("cos of rope", cos, stream), backend_of(sin).view("sin of rope", sin, stream)


def check_rope(cos, sin, device):
    """Raises InvalidError unless arrays are tables of a rope, or None."""
    if cos is None:
        return
    for name, array in (("cos", cos), ("sin", sin)):
        contiguous = len(array.shape) == 2 and (
            (array.strides[1] == 1 or array.shape[1] <= 1) and (array.strides[0] == array.shape[1] or array.shape[0] <= 1)
        )
        if array.code != FP32 or not contiguous or array.device != device:
            raise InvalidError(
                f"{name} of rope is {DTYPES[array.code]} {tuple(array.shape)} with strides {tuple(array.strides)} on GPU "
                f"{array.device}; it must be contiguous float32 [rows, rope_dim / 2] on GPU {device}"
            )
    if tuple(cos.shape) != tuple(sin.shape):
        raise InvalidError(f"cos and sin of rope have shapes {tuple(cos.shape)} and {tuple(sin.shape)}; they must be one")


def view_of_heads(name, array, stream):
    """The array of a number for each query head; None without."""
    return None if array is None else backend_of(array).view(name, array, stream)


def check_of_heads(name, array, q, places):
    """Raises InvalidError unless an array has a number for each head of that of q, or is None."""
    if array is None:
        return
    heads = q.shape[places[2]]
    contiguous = tuple(array.shape) == (heads,) and (array.strides[0] == 1 or heads == 1)
    if array.code != FP32 or not contiguous or array.device != q.device:
        raise InvalidError(
            f"{name} is {DTYPES[array.code]} {tuple(array.shape)} with strides {tuple(array.strides)} on GPU {array.device}; it must "
            f"be contiguous float32 {(heads,)}, a {'logit' if name == 'sinks' else 'number'} for each query head, on GPU {q.device}"
        )


def check_sequences(of_q, of_kv, options, q, cos):
    """The number of sequences. Raises InvalidError unless the arrays of their lengths, or None, fit to that of q."""
    if options.parts.lengths == "fixed":
        return q.shape[0]
    if cos is not None:
        raise InvalidError("rope does not go with cu_seqlens or used_kv; rotate q and k before the call")
    batch = None if options.parts.lengths == "packed" else q.shape[0]
    return check_lengths(options.parts.lengths, of_q, of_kv, batch, q.device, options.parts.pages > 0)


def view_pages(page_table, stream):
    """The array of a page table; None without."""
    return None if page_table is None else backend_of(page_table).view("page_table", page_table, stream, allowed=INTEGERS)


def columns_of(page_table):
    """How many pages a row of the table has; 0 without a table."""
    if page_table is None:
        return 0
    if len(page_table.shape) != 2:
        raise InvalidError(f"page_table has shape {tuple(page_table.shape)}; it must be [batch, pages of a sequence]")
    return page_table.shape[1]


def check_pages(page_table, batch, k, v, places_kv):
    """Raises InvalidError unless a page table, or None, is of `batch` sequences, and k and v are pools of as many pages."""
    if page_table is None:
        return
    device, pages = k.device, [array.shape[places_kv[0]] for array in (k, v)]
    if pages[0] != pages[1]:
        raise InvalidError(f"k has {pages[0]} pages and v has {pages[1]}; a table is of both")
    rows, columns = page_table.shape
    if rows != batch or page_table.strides[1] != 1 and columns > 1 or page_table.device != device:
        raise InvalidError(
            f"page_table has shape {tuple(page_table.shape)} with strides {tuple(page_table.strides)} on GPU {page_table.device}; it "
            f"must be int32 [batch, pages of a sequence], here of {batch} rows, contiguous in its last dimension, on GPU {device}"
        )


def lengths_beside(page_table, cu_seqlens, used_kv):
    """lengths_of(); where k and v lie in pages used_kv counts their rows, also beside packed queries."""
    if page_table is None:
        return lengths_of(cu_seqlens, used_kv)
    of_q, of_kv = used_kv if isinstance(used_kv, (tuple, list)) and len(used_kv) == 2 else (None, used_kv)
    if of_kv is None:
        raise InvalidError("page_table goes with used_kv, how many rows each sequence has in its pages")
    if cu_seqlens is None:
        return lengths_of(None, used_kv)
    if of_q is not None or isinstance(cu_seqlens, (tuple, list)):
        raise InvalidError("with page_table, cu_seqlens is of q alone and used_kv of k and v alone, one array each")
    return "packed", cu_seqlens, of_kv
