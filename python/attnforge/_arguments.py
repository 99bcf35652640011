"""The arguments of attention(): arrays that fit together, and the problem that they and options are."""

from typing import NamedTuple

from . import _checks
from ._arrays import FP32, ITEM_BYTES, backend_of
from ._code import check_devices, code_of
from ._errors import InvalidError
from ._lengths import check_lengths, check_pages, columns_of, lengths_of, packed_bounds, view_lengths, view_pages
from ._options import PLAIN, block_words_of, options_of
from ._overlap import overlaps_itself
from ._problem import DTYPES, Problem

# ---- Arrays ----

# Bytes: strides that TMA can take are below this, and not negative.
_TMA_STRIDE_LIMIT = 2**40


class _Strides(NamedTuple):
    """What the strides of an array allow."""

    bits: int  # OR of the strides in bytes of dimensions of more than one element
    tma: bool


def used_strides(array):
    """What the strides of q, k, v or o allow; those of dimensions of one element are never used."""
    used = [array.strides[i] * ITEM_BYTES[array.code] for i in range(len(array.shape) - 1) if array.shape[i] > 1]
    bits = 0
    for stride in used:
        bits |= stride
    return _Strides(bits, all(0 <= stride < _TMA_STRIDE_LIMIT for stride in used))


def alignment_of(bits):
    """Largest of 16, 8, 4, 2 that divides every address and stride that went into `bits`."""
    bits |= 16
    return bits & -bits


def check_rows(name, array, places):
    """Raises InvalidError unless an array has the dimensions of the places, and one more, which is contiguous."""
    dimensions = 4 if places[0] is not None else 3
    if len(array.shape) != dimensions:
        wanted = "four dimensions" if dimensions == 4 else "[tokens, heads, head_dim] with cu_seqlens"
        raise InvalidError(f"{name} has shape {tuple(array.shape)}; attention needs {wanted}")
    if array.strides[-1] != 1 and array.shape[-1] > 1:
        raise InvalidError(f"the last dimension of {name} has stride {array.strides[-1]}; it must be contiguous, of stride 1")


def view_inputs(q, k, v, stream):
    """Arrays of q, k and v."""
    return tuple(backend_of(each).view(name, each, stream) for name, each in (("q", q), ("k", k), ("v", v)))


def check_inputs(q, k, v, options):
    """Raises InvalidError unless arrays fit together."""
    check_rows("q", q, options.places)
    for name, array in (("k", k), ("v", v)):
        check_rows(name, array, options.places_kv)
    if k.device != q.device or v.device != q.device:
        raise InvalidError(f"q, k and v are on GPUs {q.device}, {k.device} and {v.device}; they must be on one")
    batch, row, head = options.places_kv
    for name, array in (("k", k), ("v", v)):
        if batch is not None and not options.pages and array.shape[batch] != q.shape[batch]:
            raise InvalidError(f"{name} has batch {array.shape[batch]} and q has {q.shape[batch]}")
    if options.pages and k.shape[batch] != v.shape[batch]:
        raise InvalidError(f"k has {k.shape[batch]} pages and v has {v.shape[batch]}; a table is of both")
    if k.shape[row] != v.shape[row] or k.shape[head] != v.shape[head]:
        raise InvalidError(f"k {tuple(k.shape)} and v {tuple(v.shape)} differ in sequence length or heads")
    if k.shape[-1] != q.shape[-1]:
        raise InvalidError(f"q has head_dim {q.shape[-1]} and k has {k.shape[-1]}")


def shape_of_o(q, v):
    return (*q.shape[:-1], v.shape[-1])


def shape_of_lse(q, places):
    batch, row, head = places
    return (q.shape[head], q.shape[row]) if batch is None else (q.shape[batch], q.shape[head], q.shape[row])


def view_outputs(o, lse, stream):
    """Arrays of o and of lse, None without one."""
    return (
        backend_of(o).view("out", o, stream),
        None if lse is None else backend_of(lse).view("the lse of out", lse, stream),
    )


def check_outputs(o, lse, q, v, places):
    """Raises InvalidError unless arrays of o and lse fit to those of q and v, and do not lie over themselves."""
    check_rows("out", o, places)
    wanted = shape_of_o(q, v)
    if tuple(o.shape) != wanted or o.device != q.device:
        raise InvalidError(f"out has shape {tuple(o.shape)} on GPU {o.device}; it must be {wanted} on GPU {q.device}")
    if overlaps_itself(o.shape, o.strides):
        raise InvalidError(f"out {tuple(o.shape)} has strides {tuple(o.strides)}: elements of it lie at one place")
    if lse is None:
        return
    wanted = shape_of_lse(q, places)
    rows_apart = len(lse.strides) == len(wanted) and lse.strides[-1] != 1 and wanted[-1] > 1
    if tuple(lse.shape) != wanted or lse.code != FP32 or lse.device != q.device or rows_apart:
        raise InvalidError(
            f"the lse of out is {DTYPES[lse.code]} {tuple(lse.shape)} with strides {tuple(lse.strides)} on GPU {lse.device}; it "
            f"must be fp32 {wanted} on GPU {q.device} with a contiguous last dimension"
        )
    if overlaps_itself(lse.shape, lse.strides):
        raise InvalidError(f"the lse of out has strides {tuple(lse.strides)}: elements of it lie at one place")


def check_block_mask(words, options, q, k):
    """Raises InvalidError unless a block mask is of the rows of q and k."""
    if words is None:
        return
    if options.lengths == "packed":
        raise InvalidError("block_mask does not go with cu_seqlens; pass padded tensors with used_kv")
    if options.pages:
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


def view_sinks(sinks, stream):
    """The array of the logits of sinks; None without."""
    return None if sinks is None else backend_of(sinks).view("sinks", sinks, stream)


def check_sinks(sinks, q, places, name="sinks"):
    """Raises InvalidError unless an array is of the logits of sinks for that of q, or of as many other numbers, or None."""
    if sinks is None:
        return
    heads = q.shape[places[2]]
    contiguous = tuple(sinks.shape) == (heads,) and (sinks.strides[0] == 1 or heads == 1)
    if sinks.code != FP32 or not contiguous or sinks.device != q.device:
        raise InvalidError(
            f"{name} is {DTYPES[sinks.code]} {tuple(sinks.shape)} with strides {tuple(sinks.strides)} on GPU {sinks.device}; it must "
            f"be contiguous float32 {(heads,)}, a {'logit' if name == 'sinks' else 'number'} for each query head, on GPU {q.device}"
        )


def check_sequences(of_q, of_kv, options, q, cos):
    """The number of sequences. Raises InvalidError unless the arrays of their lengths, or None, fit to that of q."""
    if options.lengths == "fixed":
        return q.shape[0]
    if cos is not None:
        raise InvalidError("rope does not go with cu_seqlens or used_kv; rotate q and k before the call")
    batch = None if options.lengths == "packed" else q.shape[0]
    return check_lengths(options.lengths, of_q, of_kv, batch, q.device, options.pages > 0)


def problem_of_arrays(q, k, v, code_o, options, alignment, rope_dim, batch):
    """The problem of `batch` sequences in arrays that fit together; of packed ones with bounds instead of sizes."""
    _, row, head = options.places
    _, row_kv, head_kv = options.places_kv
    seqlen_q, seqlen_kv, tokens_q, tokens_kv, page_size = q.shape[row], k.shape[row_kv], 0, 0, 0
    if options.lengths == "packed":
        seqlen_q, tokens_q = packed_bounds(batch, options.longest_q, seqlen_q)
    if options.pages:
        seqlen_kv, page_size = options.pages * seqlen_kv, seqlen_kv
    elif options.lengths == "packed":
        seqlen_kv, tokens_kv = packed_bounds(batch, options.longest_kv, seqlen_kv)
    return Problem(
        batch=batch,
        num_heads_q=q.shape[head],
        num_heads_kv=k.shape[head_kv],
        seqlen_q=seqlen_q,
        seqlen_kv=seqlen_kv,
        head_dim=q.shape[-1],
        head_dim_v=v.shape[-1],
        dtype_q=DTYPES[q.code],
        dtype_k=DTYPES[k.code],
        dtype_v=DTYPES[v.code],
        dtype_o=DTYPES[code_o],
        alignment_bytes=alignment,
        rope="none" if rope_dim == 0 else "interleaved" if options.rope_interleaved else "half",
        rope_dim=rope_dim,
        tokens_q=tokens_q,
        tokens_kv=tokens_kv,
        page_size=page_size,
        **options.words(),
    )


def problem_of(
    q,
    k,
    v,
    rope=None,
    cu_seqlens=None,
    max_seqlen=None,
    used_kv=None,
    block_mask=None,
    score=None,
    mask=None,
    args=None,
    sinks=None,
    page_table=None,
    **plain,
):
    """(problem, device) of a call of attention() with these arguments, outputs allocated by attnforge. plain: those of PLAIN."""
    for name in plain:
        if name not in PLAIN:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    kind, *lengths = lengths_of(cu_seqlens, used_kv, page_table is not None)
    words = block_words_of(block_mask)
    code = code_of(score, mask, args, None, block_mask)
    page_table = view_pages(page_table, None)
    others = {"sinks": sinks is not None, "pages": columns_of(page_table)}
    options = options_of(lengths=kind, max_seqlen=max_seqlen, code=code.texts, block_words=words, **others, **plain)
    q, k, v = view_inputs(q, k, v, None)
    check_inputs(q, k, v, options)
    check_block_mask(words, options, q, k)
    check_devices(code, q.device)
    cos, sin = view_rope(rope, None)
    check_rope(cos, sin, q.device)
    check_sinks(view_sinks(sinks, None), q, options.places)
    lengths = view_lengths(kind, *lengths, None, page_table is not None)
    batch = check_sequences(*lengths, options, q, cos)
    check_pages(page_table, batch, q.device)
    strides = [used_strides(array) for array in (q, k, v)]
    bits = q.address | k.address | v.address | v.shape[-1] * ITEM_BYTES[q.code]  # and rows of o
    for each in strides:
        bits |= each.bits
    alignment = min(alignment_of(bits), 16 if all(each.tma for each in strides) else 8)
    rope_dim = 0 if cos is None else 2 * cos.shape[1]
    return problem_of_arrays(q, k, v, q.code, options, alignment, rope_dim, batch), q.device
