"""k and v of 8 and 4 bits: the arrays of their scales, and quantize_kv(), which makes such k or v."""

from . import _checks
from ._arrays import backend_of
from ._errors import InvalidError
from ._formats import DTYPES, FORMATS, FP32, LOW_BITS, numbers_in

SCALE_NAMES = ("k_scale", "v_scale")
_GROUPS = (32, 64, 128)
_LARGEST = {"int8": 127.0, "int4": 7.0, "e4m3": 448.0, "e5m2": 57344.0}


def view_scales(k_scale, v_scale, stream):
    """The arrays of scales; None without."""
    given = zip(SCALE_NAMES, (k_scale, v_scale))
    return tuple(None if each is None else backend_of(each).view(name, each, stream, allowed=(FP32,)) for name, each in given)


def _kind(scale, of):
    """What shares an element of a scale of an array k or v, as the problem says; None: its shape fits nothing."""
    shape, rows, columns = tuple(scale.shape), tuple(of.shape[:-1]), of.shape[-1] * numbers_in(of)
    if len(shape) <= 1 and all(size == 1 for size in shape):
        return "tensor"
    if shape == rows:
        return "token"
    if shape[:-1] == rows:
        return next((f"group{group}" for group in _GROUPS if -(-columns // group) == shape[-1]), None)
    return "head" if len(shape) <= 2 else None


def kv_scale_of(k_scale, v_scale, k, v):
    return next(_kind(scale, of) for scale, of in ((k_scale, k), (v_scale, v)) if scale is not None)


def strides_of(scale, dimensions, places):
    """Strides of batch, row and head of a scale, or of None, of k and v of so many dimensions."""
    if scale is None or len(scale.shape) < 1:
        return 0, 0, 0
    if len(scale.shape) >= dimensions - 1:  # of rows
        return tuple(0 if i is None else scale.strides[i] for i in places)
    of_batch = scale.strides[0] if len(scale.shape) == 2 else 0
    return of_batch, 0, scale.strides[-1] if scale.shape[-1] > 1 else 0


def check_scales(k_scale, v_scale, batch, k, v, places):
    """Raises InvalidError unless arrays are scales of k and v, or None where these have none."""
    kinds = set()
    for name, scale, of in zip(SCALE_NAMES, (k_scale, v_scale), (k, v)):
        low = of.code in LOW_BITS
        if scale is None:
            if low and (k_scale is not None or v_scale is not None):
                raise InvalidError(f"{name} is missing: {name[0]} is {DTYPES[of.code]}, and the other has scales")
            continue
        if not low:
            raise InvalidError(f"{name} goes with {name[0]} of int8, uint8 (4 bits) or float8, not of {FORMATS[of.code].name}; leave it out")
        kind, heads = _kind(scale, of), of.shape[places[2]]
        fits = kind != "head" or tuple(scale.shape) in ((heads,), (batch, heads))
        if kind is None or not fits or scale.device != of.device or (kind.startswith("group") and scale.strides[-1] != 1):
            raise InvalidError(
                f"{name} has shape {tuple(scale.shape)} with strides {tuple(scale.strides)} on GPU {scale.device}; it must be float32 of one "
                f"element, {(heads,)}, {(batch, heads)}, {tuple(of.shape[:-1])}, or that with one for each 32, 64 or 128 of "
                f"{of.shape[-1] * numbers_in(of)} columns, contiguous there, on GPU {of.device}"
            )
        kinds.add(kind)
    if len(kinds) > 1:
        raise InvalidError(f"k_scale is of each {' and v_scale of each '.join(sorted(kinds))}; they must be of one kind")


def quantize_kv(x, dtype="int8", scale="token"):
    """(numbers, scales) of k or v for attention(): torch tensors on the device of x, [..., heads_kv, head_dim] of floats.

    dtype: "int8", "e4m3", "e5m2", or "int4", of which a byte holds two and the last dimension is half as long. scale: what shares one:
    "token" (a row of a head), or "group32", "group64", "group128" columns of it, the last group of which may have fewer. A scale is the
    largest magnitude that it is of, divided by the largest number of the dtype; numbers are rounded to the nearest, ties to even.
    """
    import torch

    _checks.one_of("dtype", dtype, tuple(_LARGEST))
    kinds = ("token", *(f"group{group}" for group in _GROUPS))
    _checks.one_of("scale", scale, kinds)
    columns = x.shape[-1]
    group = columns if scale == "token" else int(scale[5:])
    values = torch.nn.functional.pad(x.float(), (0, -columns % group)).unflatten(-1, (-1, group))
    scales = values.abs().amax(-1) / _LARGEST[dtype]
    values = (values / scales.where(scales != 0, scales.new_ones(())).unsqueeze(-1)).flatten(-2)[..., :columns]
    scales = scales.squeeze(-1) if scale == "token" else scales
    if dtype in ("e4m3", "e5m2"):
        return values.to(torch.float8_e4m3fn if dtype == "e4m3" else torch.float8_e5m2), scales
    numbers = values.round().to(torch.int8)
    if dtype == "int8":
        return numbers, scales
    low, high = numbers[..., 0::2].view(torch.uint8) & 15, numbers[..., 1::2].view(torch.uint8) & 15
    return low | high << 4, scales
