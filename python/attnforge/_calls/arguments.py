"""The arguments of attention(): arrays that fit together, and the problem that they and options are."""

from typing import NamedTuple

from . import parts as _parts
from .._arrays import Array, backend_of, contiguous
from .._errors import InvalidError
from .._formats import BF16, E4M3, FP32, ITEM_BYTES, LOW_BITS, OF_CACHES, OF_Q, Q8_0, blocks_of, numbers_in
from .lengths import PACKED_SHAPE
from .code import check_devices, code_of
from .._names import check_heads
from .._options import NO_WORDS, check_options, options_of
from .overlap import overlaps_itself
from .._problem import DTYPES, Problem

# ---- Arrays ----

# Bytes: strides that TMA can take are below this, and not negative.
_TMA_STRIDE_LIMIT = 2**40


class _Strides(NamedTuple):
    """What the strides of an array allow."""

    bits: int  # OR of the strides in bytes of dimensions of more than one element
    tma: bool


def used_strides(array):
    """What the strides of q, k, v or o allow; those of dimensions of one element are never used."""
    if array.code >= Q8_0:  # 2 bytes will do
        return _Strides(0, True)
    used = [array.strides[i] * ITEM_BYTES[array.code] for i in range(len(array.shape) - 1) if array.shape[i] > 1]
    bits = 0
    for stride in used:
        bits |= stride
    return _Strides(bits, all(0 <= stride < _TMA_STRIDE_LIMIT for stride in used))


def alignment_of(bits):
    """Largest of 16, 8, 4, 2 that divides every address and stride that went into `bits`."""
    bits |= 16
    return bits & -bits


def alignment_of_all(tensors):
    """The alignment of a problem with these arrays."""
    bits, tma = 0, True
    for array in tensors:
        strides = used_strides(array)
        bits |= array.address | strides.bits
        tma = tma and strides.tma
    return min(alignment_of(bits), 16 if tma else 8)


def check_rows(name, array, places):
    """Raises InvalidError unless an array has the dimensions of the places, and one more, which is contiguous."""
    dimensions = 4 if places[0] is not None else 3
    if len(array.shape) != dimensions:
        wanted = "four dimensions" if dimensions == 4 else PACKED_SHAPE
        raise InvalidError(f"{name} has shape {tuple(array.shape)}; attention needs {wanted}")
    if array.strides[-1] != 1 and array.shape[-1] > 1:
        raise InvalidError(f"the last dimension of {name} has stride {array.strides[-1]}; it must be contiguous, of stride 1")


def view_inputs(q, k, v, stream, given=None, words=NO_WORDS):
    """Arrays of q, k and v. given, words: Options and Words of the call; with them shapes that are wrong are named before a GPU that is
    missing, and bytes of v that has scales of its own are int4, as they are beside k of other few bits."""
    of_each = (("q", q, OF_Q), ("k", k, OF_CACHES), ("v", v, OF_CACHES))
    try:
        q, k, v = (backend_of(each).view(name, each, stream, allowed) for name, each, allowed in of_each)
        k = _in_blocks("k", k, q)
        if k.code in LOW_BITS or given is not None and given.v_scale is not None:
            return q, k, v
        return q, k, _in_blocks("v", v, q)
    except InvalidError:
        if given is not None:
            _check_shapes((q, k, v), check_options(given, words))
        raise


def _in_blocks(name, array, q):
    """k or v, of blocks where a row has those of q's head_dim."""
    found = blocks_of(array, q.shape[-1]) if array.shape and q.shape else array
    if found is None:
        raise InvalidError(f"{name} has strides {tuple(array.strides)}; those of blocks must be multiples of their bytes")
    return found


def _check_shapes(inputs, options):
    """Raises InvalidError where shapes alone are wrong, of arrays of one dtype that may be anywhere."""
    try:
        shapes = [tuple(each.shape) for each in inputs]
        same = inputs[0].dtype == inputs[1].dtype == inputs[2].dtype
    except Exception:  # no arrays, or torch's that have no shape
        return
    if same:
        check_inputs(*(Array(0, shape, contiguous(shape), BF16, 0) for shape in shapes), options)


def check_inputs(q, k, v, options):
    """Raises InvalidError unless arrays fit together."""
    check_rows("q", q, options.places)
    for name, array in (("k", k), ("v", v)):
        check_rows(name, array, options.places_kv)
    if k.device != q.device or v.device != q.device:
        raise InvalidError(f"q, k and v are on GPUs {q.device}, {k.device} and {v.device}; they must be on one")
    batch, row, head = options.places_kv
    for name, array in (("k", k), ("v", v)):
        if options.shares_batch and array.shape[batch] != q.shape[batch]:
            raise InvalidError(f"{name} has batch {array.shape[batch]} and q has {q.shape[batch]}")
    if k.shape[row] != v.shape[row] or k.shape[head] != v.shape[head]:
        raise InvalidError(f"k {tuple(k.shape)} and v {tuple(v.shape)} differ in sequence length or heads")
    if numbers_in(k, k.shape[-1]) != q.shape[-1]:
        raise InvalidError(f"q has head_dim {q.shape[-1]} and k has {numbers_in(k, k.shape[-1])}")
    check_heads(q, k, options)


def shape_of_o(q, v):
    return (*q.shape[:-1], numbers_in(v, v.shape[-1]))


def code_of_o(q):
    """Of an o that attnforge allocates."""
    return BF16 if q.code == E4M3 else q.code


def shape_of_lse(q, places):
    batch, row, head = places
    return (q.shape[head], q.shape[row]) if batch is None else (q.shape[batch], q.shape[head], q.shape[row])


def new_outputs(backend, inputs, places, has_lse, queue):
    """(o, lse) of the framework, lse None where it is not asked for."""
    q, _, v = inputs
    o = backend.empty(shape_of_o(q, v), code_of_o(q), q.device, queue)
    return o, backend.empty(shape_of_lse(q, places), FP32, q.device, queue) if has_lse else None


def view_outputs(o, lse, stream):
    """Arrays of o and of lse, None without one."""
    return (
        backend_of(o).view("out", o, stream),
        None if lse is None else backend_of(lse).view("the lse of out", lse, stream),
    )


def check_lse(name, array, wanted, device):
    """Raises InvalidError unless an array is lse, or its gradient, of that shape on that GPU."""
    shape, strides = tuple(array.shape), tuple(array.strides)
    rows_apart = len(strides) == len(wanted) and strides[-1] != 1 and wanted[-1] > 1
    if shape != wanted or array.code != FP32 or array.device != device or rows_apart:
        raise InvalidError(
            f"{name} is {DTYPES[array.code]} {shape} with strides {strides} on GPU {array.device}; it must be fp32 {wanted} on GPU "
            f"{device} with a contiguous last dimension"
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
    check_lse("the lse of out", lse, shape_of_lse(q, places), q.device)
    if overlaps_itself(lse.shape, lse.strides):
        raise InvalidError(f"the lse of out has strides {tuple(lse.strides)}: elements of it lie at one place")


def problem_of_arrays(q, k, v, code_o, options, alignment, batch, words):
    """The problem of `batch` sequences in arrays that fit together; words: those of its parts (_parts.words_of_arrays)."""
    head, head_kv = options.places[2], options.places_kv[2]
    return Problem(
        batch=batch,
        num_heads_q=q.shape[head],
        num_heads_kv=k.shape[head_kv],
        head_dim=q.shape[-1],
        head_dim_v=numbers_in(v, v.shape[-1]),
        dtype_q=DTYPES[q.code],
        dtype_k=DTYPES[k.code],
        dtype_v=DTYPES[v.code],
        dtype_o=DTYPES[code_o],
        alignment_bytes=alignment,
        **options.words(),
        **words,
    )


def problem_of(q, k, v, rope_offset=0, **options):
    """(problem, device) of a call of attention() with these arguments, outputs allocated by attnforge."""
    given = options_of(options)
    code = code_of(given.score, given.mask, given.args, None, given.block_mask)
    kind, arrays = _parts.view(given, None)
    words = _parts.words_of(given, code, kind, arrays)
    q, k, v = view_inputs(q, k, v, None, given, words)
    options = check_options(given, words)
    check_inputs(q, k, v, options)
    check_devices(code, q.device)
    batch = _parts.check(arrays, options, q, k, v)
    alignment = alignment_of_all((q, k, v))  # those of o are aligned: head dims are multiples of 8
    words = _parts.words_of_arrays(arrays, options, batch, q, k, v)
    return problem_of_arrays(q, k, v, code_of_o(q), options, alignment, batch, words), q.device
