"""reference(): attention() in fp64 on the CPU, for tests of who calls it."""

import ctypes
import math

from . import _c, _checks
from ._calls import parts as _parts
from ._calls.arguments import check_inputs, code_of_o, problem_of_arrays, shape_of_lse, shape_of_o, view_inputs
from ._arrays import Array, _by_type, contiguous, no_dtype
from ._calls.code import code_of
from ._calls.lengths import packed_rows
from ._caches.scales import SCALE_NAMES, SCALES
from ._errors import InvalidError, UnsupportedError
from ._formats import FLOATS, FORMATS, FP32, ITEM_BYTES, Q8_0
from ._library import check, lib
from ._options import check_options, options_of

_CODES = {each.name: code for code, each in enumerate(FORMATS)}
_ALIGNED = 256  # arrays of args begin on multiples of it


class _HostArray:
    """A contiguous copy in host memory of an array of torch or numpy."""

    def __init__(self, address, shape, code, owner):
        self.address, self.shape, self.code, self.owner = address, shape, code, owner
        self.dtype = FORMATS[code].name
        self.bytes = math.prod(shape) * ITEM_BYTES[code]


class _Host:
    """The backend of these."""

    torch = None

    def view(self, name, array, stream=None, allowed=FLOATS):
        if array.code not in allowed:
            raise InvalidError(f"{name} has dtype {array.dtype}, {no_dtype(allowed)}")
        return Array(array.address, array.shape, contiguous(array.shape), array.code, -1, array.owner)


_by_type[_HostArray] = _Host()


def _on_host(value):
    """Arrays among options, and in tuples and dicts of them, as _HostArray; others as they are."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_on_host, value))
    if not hasattr(value, "shape") or not hasattr(value, "dtype") or isinstance(_checks.plain(value), (int, float)):
        return value
    code = _CODES.get(str(value.dtype).rpartition(".")[2])
    if code is None:
        raise InvalidError(f"{_checks.type_name(value)} has dtype {value.dtype}, {no_dtype(range(Q8_0))}")
    if hasattr(value, "data_ptr"):
        value = value.detach().cpu().contiguous()
        address = value.data_ptr()
    else:
        import numpy

        value = numpy.ascontiguousarray(value)
        address = value.ctypes.data
    return _HostArray(address, tuple(value.shape), code, value)


def _new(like, shape, code):
    """(a new array of `like`'s framework in host memory, as _HostArray)."""
    if hasattr(like, "data_ptr"):
        import torch

        made = torch.empty(shape, dtype=getattr(torch, FORMATS[code].name))
    else:
        import numpy

        made = numpy.empty(shape, dtype=FORMATS[code].name)
    return made, _on_host(made)


def _code_tensors(code, args):
    """The arrays of args one after another, and the words that say where each begins, or numbers."""
    words, pieces, at = [], [], 0
    for word, array in zip(code.words, args.values()):
        if not isinstance(array, _HostArray):
            words.append(word)
            continue
        words.append(at)
        pieces.append(ctypes.string_at(array.address, array.bytes) + bytes(-array.bytes % _ALIGNED))
        at += len(pieces[-1])
    return b"".join(pieces), (ctypes.c_uint64 * len(words))(*words)


def _sized(args):
    """Options' args with as many elements in each name as the array has: nothing is read beyond. What a name says of other problems'
    sizes may be more."""
    named = {name: _on_host(value) for name, value in (args or {}).items()}
    of_array = [isinstance(value, _HostArray) for value in named.values()]
    return {
        f"{name.partition('[')[0]}[{math.prod(value.shape)}]" if is_array else name: value
        for (name, value), is_array in zip(named.items(), of_array)
    }


def reference(q, k, v, *, rope_offset=0, attn_mask=None, **options):
    """What attention() computes, in fp64 on the CPU and rounded once: for tests of programs that call it, and for machines without a GPU.

    q, k, v and options: as for attention(), of torch on any device, or of numpy; returns o, or (o, lse) with return_lse, where q is.
    Takes every option but gradients' (tf32, deterministic and batch_invariant change nothing), of texts what docs/USER_CODE.md says
    under "On the CPU", and scales by heads of one sequence. Rows that do not count are NaN. About 2 GFLOP/s per core, all cores.
    Raises InvalidError (a ValueError) as attention(), UnsupportedError for texts that only a compiler reads.
    """
    if attn_mask is not None:
        if not hasattr(attn_mask, "data_ptr"):
            raise UnsupportedError("attn_mask is of torch here; pass score and args")
        from .integrations.masks import with_attn_mask

        options = with_attn_mask(attn_mask, q, k, options)
    named, given = options, options_of(options)
    blocks = given.block_mask
    if blocks is not None and given.mask is None and getattr(blocks, "mask", None):
        given = given._replace(mask=blocks.mask, args={**(blocks.args or {}), **(given.args or {})})
    args = _sized(given.args)
    given = given._replace(args=args or None, **{name: _on_host(getattr(given, name)) for name in _OF_ARRAYS})
    code = code_of(given.score, given.mask, given.args, None)
    kind, parts = _parts.view(given, None)
    words = _parts.words_of(given, code, kind, parts)
    inputs = view_inputs(*map(_on_host, (q, k, v)), None, given, words)
    options = check_options(given, words)
    check_inputs(*inputs, options)
    batch = _parts.check(parts, options, *inputs)
    words = _parts.words_of_arrays(parts, options, batch, *inputs)
    if options.parts.packed:
        of_q, of_kv = packed_rows(batch, words["seqlen_q"], len(q)), packed_rows(batch, words["seqlen_kv"], len(k))
        paged = options.parts.pages
        if of_q != len(q) or not paged and of_kv != len(k):
            scaled = words.get("kv_scale") in SCALES
            if scaled and given.q_scale is not None:  # and v has scales of heads
                named["q_scale"] = _first_rows(named["q_scale"], of_q)
            if not paged:
                k, v = _first_rows(k, of_kv), _first_rows(v, of_kv)
                of_rows = () if not scaled else SCALE_NAMES if given.q_scale is None else SCALE_NAMES[:1]
                named |= {name: _first_rows(named[name], of_kv) for name in of_rows if named.get(name) is not None}
            results = reference(_first_rows(q, of_q), k, v, rope_offset=rope_offset, **named)
            o, lse = results if options.lse else (results, None)
            o = _with_rows(o, len(q))
            return (o, _with_rows(lse.T, len(q)).T) if options.lse else o
        words |= {"tokens_q": of_q, "tokens_kv": 0 if paged else of_kv}
    of_o = code_of_o(inputs[0])
    problem = problem_of_arrays(*inputs, of_o, options, 16, batch, words)
    o, lse = _new(q, shape_of_o(inputs[0], inputs[2]), of_o), _new(q, shape_of_lse(inputs[0], options.places), FP32)
    tensors = dict(zip("qkv", map(_of_array, inputs)), o=_of_array(o[1]))
    if options.lse:
        tensors["lse"] = _of_array(lse[1])
    kept = _tensors_of_parts(tensors, parts, batch, words, rope_offset)
    if blocks is not None:
        lists = zip(("mask_row_begin", "mask_columns", "mask_bits", "mask_bit_blocks"), blocks.lists())
        kept += [_add_bytes(tensors, name, data) for name, data in lists]
    if args:
        arrays, code_words = _code_tensors(code, args)
        kept += [_add_bytes(tensors, "code_arrays", arrays), code_words]
        tensors["code_words"] = ctypes.addressof(code_words), ctypes.sizeof(code_words)
    listed = (_c.HostTensor * len(tensors))(*((name.encode(), *of) for name, of in tensors.items()))
    with problem.handle() as handle:
        check(lib().attnforge_solve_on_cpu(handle, listed, len(listed)))
    del kept
    o, lse = (x.to(q.device) if hasattr(x, "data_ptr") else x for x in (o[0], lse[0]))
    return (o, lse) if options.lse else o


def _first_rows(packed, rows):
    """So many rows of a packed tensor; one of zeros where it has none."""
    return packed[:rows] if len(packed) else _like(packed, rows, 0)


def _with_rows(packed, rows):
    """A packed tensor with so many rows: those that there were not are NaN."""
    found = _like(packed, rows, math.nan)
    found[: len(packed)] = packed[:rows]
    return found


def _like(packed, rows, value):
    if hasattr(packed, "data_ptr"):
        return packed.new_full((rows, *packed.shape[1:]), value)
    import numpy

    return numpy.full((rows, *packed.shape[1:]), value, packed.dtype)


_OF_ARRAYS = ("rope", "cu_seqlens", "used_kv", "page_table", "sinks", "k_scale", "v_scale", "q_scale")


def _of_array(array):
    """(address, bytes)."""
    return array.address, math.prod(array.shape) * ITEM_BYTES[array.code]


def _add_bytes(tensors, name, data):
    """Adds bytes, and returns what keeps them."""
    memory = ctypes.create_string_buffer(data, max(len(data), 1))
    tensors[name] = ctypes.addressof(memory), len(data)
    return memory


def _tensors_of_parts(tensors, parts, batch, words, rope_offset):
    """Adds the arrays of parts by their names in host memory; what is not there stands for all rows. Returns what keeps those made here."""
    kept = []
    names = {"cos": "rope_cos", "sin": "rope_sin", "of_q": "lengths_q", "of_kv": "lengths_kv"}
    for name, array in zip(parts._fields, parts):
        if array is not None:
            tensors[names.get(name, name)] = _of_array(array)
    if words["lengths"] == "used":
        for name, rows in (("lengths_q", words["seqlen_q"]), ("lengths_kv", words["seqlen_kv"])):
            if name not in tensors:
                kept.append(_add_bytes(tensors, name, bytes((ctypes.c_int32 * batch)(*(rows,) * batch))))
    if parts.cos is not None:
        offset = _checks.integer("rope_offset", rope_offset, -(2**63), 2**63 - 1)
        kept.append(_add_bytes(tensors, "rope_offset", bytes(ctypes.c_int64(offset))))
    return kept


