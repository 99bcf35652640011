"""k and v of 8 and 4 bits: the arrays of their scales, and quantize_kv(), which makes such k or v."""

from .. import _checks
from .._arrays import backend_of
from .._errors import InvalidError
from .._formats import DTYPES, FORMATS, FP32, INT4, LOW_BITS, numbers_in

SCALE_NAMES = ("k_scale", "v_scale")
_GROUPS = (32, 64, 128)
SCALES = ("token", *(f"group{group}" for group in _GROUPS))  # that rows have
_LARGEST = {"int8": 127.0, "int4": 7.0, "e4m3": 448.0, "e5m2": 57344.0}


def view_scales(options, stream, names=SCALE_NAMES):
    """The arrays of scales among options; None without."""
    given = [(name, getattr(options, name)) for name in names]
    return tuple(None if each is None else backend_of(each).view(name, each, stream, allowed=(FP32,)) for name, each in given)


def _kinds(scale, of):
    """What may share an element of a scale of an array k or v, as the problem says: of rows shorter than a group, some; none: its shape
    fits nothing."""
    shape, rows, columns = tuple(scale.shape), tuple(of.shape[:-1]), numbers_in(of, of.shape[-1])
    if _has_zeros(scale, of):
        groups = shape[-2] if shape[:-2] == rows and shape[-1] == 2 else 0
        return ("token",) * (groups == 1) + tuple(f"group{group}" for group in _GROUPS if -(-columns // group) == groups)
    if len(shape) <= 1 and all(size == 1 for size in shape):
        return ("tensor",)
    if shape == rows:
        return ("token",)
    if shape[:-1] == rows:
        return tuple(f"group{group}" for group in _GROUPS if -(-columns // group) == shape[-1])
    return ("head",) if len(shape) <= 2 else ()


def _has_zeros(scale, of):
    """Whether the elements of a scale of an array k or v are pairs, a scale and a zero point: then it has a dimension more than that."""
    return len(scale.shape) == len(of.shape) + 1


def _common_kinds(k_scale, v_scale, k, v):
    """Those that fit both, of arrays that fit."""
    of_each = [_kinds(scale, of) for scale, of in ((k_scale, k), (v_scale, v)) if scale is not None]
    return [kind for kind in of_each[0] if kind in of_each[-1]]


def _of_q_and_k(k_scale, q, k):
    """Whether q is of 8 bits and its rows and those of k have scales: v has some of heads then. q is None where there is none."""
    return q is not None and q.code in LOW_BITS and k_scale is not None and "token" in _kinds(k_scale, k)


def words_of_scales(k_scale, v_scale, k, v, q=None):
    """Of the problem, by the names of its fields, of arrays or None that fit."""
    if k_scale is None and v_scale is None:
        return {"kv_scale": "none"}
    if _of_q_and_k(k_scale, q, k):
        return {"kv_scale": "token", "kv_zero": False}
    zeros = any(scale is not None and _has_zeros(scale, of) for scale, of in ((k_scale, k), (v_scale, v)))
    return {"kv_scale": _common_kinds(k_scale, v_scale, k, v)[0], "kv_zero": zeros}


def strides_of_all(k_scale, v_scale, q_scale, q, k, options):
    """strides_of() each."""
    of_rows, low_q = _of_q_and_k(k_scale, q, k), q.code in LOW_BITS
    of_k, of_v = strides_of(k_scale, k, options.places_kv), strides_of(v_scale, k, options.places_kv, not low_q)
    return of_k, of_v, strides_of(q_scale, q, options.places, of_rows)


def strides_of(scale, of, places, may_be_of_rows=True):
    """Strides of batch, row and head of a scale, or of None, of an array q, k or v."""
    if scale is None or len(scale.shape) < 1:
        return 0, 0, 0
    if may_be_of_rows and tuple(scale.shape[: len(of.shape) - 1]) == tuple(of.shape[:-1]):
        return tuple(0 if i is None else scale.strides[i] for i in places)
    of_batch = scale.strides[0] if len(scale.shape) == 2 else 0
    return of_batch, 0, scale.strides[-1] if scale.shape[-1] > 1 else 0


def check_scales(k_scale, v_scale, batch, k, v, places, q=None):
    """Raises InvalidError unless arrays are scales of k and v, or None where these have none; q as _of_q_and_k() has it."""
    of_q_and_k = _of_q_and_k(k_scale, q, k)
    for name, scale, of in zip(SCALE_NAMES, (k_scale, v_scale), (k, v)):
        low = of.code in LOW_BITS
        if scale is None:
            if low and (k_scale is not None or v_scale is not None):
                raise InvalidError(f"{name} is missing: {name[0]} is {DTYPES[of.code]}, and the other has scales")
            continue
        if not low:
            raise InvalidError(f"{name} goes with {name[0]} of int8, uint8 (4 bits) or float8, not of {FORMATS[of.code].name}; leave it out")
        heads = of.shape[places[2]]
        if of_q_and_k and name == "v_scale" and (tuple(scale.shape) not in ((heads,), (batch, heads)) or scale.device != v.device):
            raise InvalidError(
                f"v_scale has shape {tuple(scale.shape)} on GPU {scale.device}; beside scales of rows of q and k of float8 it must be "
                f"float32 {(heads,)} or {(batch, heads)} on GPU {v.device}"
            )
        kinds = ("head",) if of_q_and_k and name == "v_scale" else _kinds(scale, of)
        fits = kinds and (kinds[0] != "head" or tuple(scale.shape) in ((heads,), (batch, heads)))
        if not fits or scale.device != of.device or not _is_dense(scale, len(of.shape) - 1):
            raise InvalidError(
                f"{name} has shape {tuple(scale.shape)} with strides {tuple(scale.strides)} on GPU {scale.device}; it must be float32 of one "
                f"element, {(heads,)}, {(batch, heads)}, {tuple(of.shape[:-1])}, or that with one for each 32, 64 or 128 of "
                f"{numbers_in(of, of.shape[-1])} columns, contiguous there, on GPU {of.device}; of 4 bits with zero points "
                f"{(*of.shape[:-1], 1, 2)} or groups in place of the 1"
            )
        if _has_zeros(scale, of) and of.code != INT4:
            raise InvalidError(f"{name} has zero points, which are of uint8 (4 bits), not of {FORMATS[of.code].name}")
    if of_q_and_k:
        return
    if (k_scale is not None or v_scale is not None) and not _common_kinds(k_scale, v_scale, k, v):
        kinds = [_kinds(scale, of)[0] for scale, of in ((k_scale, k), (v_scale, v))]
        raise InvalidError(f"k_scale is of each {' and v_scale of each '.join(kinds)}; they must be of one kind")
    if k_scale is not None and v_scale is not None and _has_zeros(k_scale, k) != _has_zeros(v_scale, v):
        raise InvalidError("one of k_scale and v_scale has zero points; both or none must")


def _is_dense(scale, of_rows):
    """Whether what each row has lies together: the dimensions after `of_rows`."""
    wanted = 1
    for size, stride in zip(scale.shape[: of_rows - 1 : -1], scale.strides[: of_rows - 1 : -1]):
        if size > 1 and stride != wanted:
            return False
        wanted *= size
    return True


def check_q_scale(q_scale, k_scale, batch, q, k, places):
    """Raises InvalidError unless an array has the scales of q, or is None where q has none; that of k is checked."""
    if q_scale is None:
        if q.code in LOW_BITS and k_scale is not None:
            raise InvalidError(f"q_scale is missing: q is {DTYPES[q.code]}, and k has scales")
        return
    if q.code not in LOW_BITS:
        raise InvalidError(f"q_scale goes with q of float8_e4m3fn, not of {FORMATS[q.code].name}; leave it out")
    heads, shape, of_rows = k.shape[places[2]], tuple(q_scale.shape), tuple(q.shape[:-1])
    of_all = len(shape) <= 1 and all(size == 1 for size in shape)
    if not of_all and shape not in ((heads,), (batch, heads), of_rows) or q_scale.device != q.device:
        raise InvalidError(
            f"q_scale has shape {shape} on GPU {q_scale.device}; it must be float32 of one element, {(heads,)} or {(batch, heads)}, a "
            f"scale for the query heads of each head of k, or {of_rows}, on GPU {q.device}"
        )
    kind = k_scale is not None and _kinds(k_scale, k)[0]
    if not kind or not {"tensor": of_all, "token": shape == of_rows}.get(kind, shape in ((heads,), (batch, heads))):
        raise InvalidError("q_scale and k_scale must both be there, of one element, of heads or of rows")


def stored(name, dim, dtype, scale, zero):
    """(torch's dtype, elements of a row, dimensions of its scales or None without) of a cache of head_dim `dim`, which is called `name`.
    dtype: torch's, or as of quantize_kv(), as scale and zero are."""
    import torch

    kinds = {DTYPES[code]: getattr(torch, FORMATS[code].name, None) for code in LOW_BITS}
    word = dtype if dtype in kinds else next((word for word, kind in kinds.items() if kind == dtype), None)
    if word is None:
        if isinstance(dtype, str) and not hasattr(torch, dtype):
            _checks.one_of("dtype", dtype, (*kinds, "a dtype of torch"))
        return getattr(torch, dtype) if isinstance(dtype, str) else dtype, dim, None
    _checks.one_of("scale", scale, SCALES)
    if _checks.integer(name, dim, 8, 512) % 8:
        inside = "a row would end inside a byte, and " if word == "int4" and dim % 2 else ""
        raise InvalidError(f"{name}={dim} must be a multiple of 8 for a cache of {word}: {inside}kernels take no others")
    _check_zero(zero, word)
    of_row = () if scale == "token" else (-(-dim // int(scale[5:])),)
    if zero:
        of_row = (*(of_row or (1,)), 2)
    return kinds[word], dim // (2 if word == "int4" else 1), of_row


def _check_zero(zero, dtype):
    if _checks.flag("zero", zero) and dtype != "int4":
        raise InvalidError(f"zero points are of int4, not of {dtype}: of 8 bits a scale alone loses little")


def rows_together(scales, rows):
    """The same, in memory so that scales of a head's rows, dimension `rows`, lie together: reads of one head take whole sectors then."""
    return scales if rows < 0 else scales.transpose(rows, rows + 1).contiguous().transpose(rows, rows + 1)


def quantize_kv(x, dtype="int8", scale="token", zero=False):
    """(numbers, scales) of k or v for attention(): torch tensors on the device of x, [..., heads_kv, head_dim] of floats.

    dtype: "int8", "e4m3", "e5m2", or "int4", of which a byte holds two and the last dimension is half as long. scale: what shares one:
    "token" (a row of a head), or "group32", "group64", "group128" columns of it, the last group of which may have fewer. A scale is the
    largest magnitude that it is of, divided by the largest number of the dtype (127, 7, 448, 57344), NaN where one is NaN or infinite, and
    0 below 2^-126; numbers are x times 1 / scale, each in float32, x where a scale is 0, rounded to the nearest, ties to even, no farther
    from 0 than that largest, and 0 in place of NaN of integers. They have no gradient. Scales of a head's rows lie together in memory, which
    is fastest; attention() takes any strides.

    zero: of int4, values are numbers times scales plus zero points: scales are [..., groups, 2] then, of "token" one group, and each pair
    is a scale and its zero point. The least x becomes -8 and the largest 7: the scale is (largest / 2 - least / 2) * (2 / 15), the zero
    point least + 8 * scale, numbers are (x - zero point) * (1 / scale). That pays where most of a row has one sign.
    """
    import torch

    _checks.one_of("dtype", dtype, tuple(_LARGEST))
    _checks.one_of("scale", scale, SCALES)
    _check_zero(zero, dtype)
    if not isinstance(x, torch.Tensor):
        _checks.refuse_type("x", x, "a torch tensor")
    columns = x.shape[-1] if x.dim() else 0
    if columns == 0 or dtype == "int4" and columns % 2:
        raise InvalidError(f"x has shape {tuple(x.shape)}; its last dimension must be a head_dim, of int4 an even one")
    group = columns if scale == "token" else int(scale[5:])
    rows = x.detach().float()
    padding = rows[..., -1:].expand(*rows.shape[:-1], -columns % group)  # changes neither the least nor the largest of a group
    values = torch.cat([rows, padding], -1).unflatten(-1, (-1, group))
    largest = (values if zero else values.abs()).amax(-1)
    least = values.amin(-1) if zero else -largest
    exact = (largest * 0.5 - least * 0.5) * (2 / 15) if zero else largest / _LARGEST[dtype]
    scales = exact.where(largest.isfinite() & least.isfinite(), largest.new_tensor(float("nan")))
    scales = scales.where(~(scales < torch.finfo(torch.float32).tiny), scales.new_zeros(()))
    inverse = 1 / scales.where(scales != 0, scales.new_ones(()))
    zeros = 2 * (4 * scales + least * 0.5) if zero else None  # in halves: 8 times a scale may be too large
    values = values if zeros is None else values - zeros.unsqueeze(-1)
    values = (values * inverse.unsqueeze(-1)).flatten(-2)[..., :columns]
    values = values.clamp(-8 if zero else -_LARGEST[dtype], _LARGEST[dtype])
    scales = torch.stack([scales, zeros], -1) if zero else scales.squeeze(-1) if scale == "token" else scales
    scales = rows_together(scales, x.dim() - 3)
    if dtype in ("e4m3", "e5m2"):
        return values.to(torch.float8_e4m3fn if dtype == "e4m3" else torch.float8_e5m2), scales
    numbers = values.round().nan_to_num(0).to(torch.int8)
    if dtype == "int8":
        return numbers, scales
    low, high = numbers[..., 0::2].view(torch.uint8) & 15, numbers[..., 1::2].view(torch.uint8) & 15
    return low | high << 4, scales
