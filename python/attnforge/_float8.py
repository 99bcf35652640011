"""quantize_qkv(): q, k and v of 8 bits for attention()."""

from . import _checks
from ._caches.scales import quantize_kv
from ._errors import InvalidError


def quantize_qkv(q, k, v, smooth_k=False, rotate=False, layout="bshd", scale="head"):
    """q, k and v as float8_e4m3fn for attention(), of torch tensors of floats as it takes them: in batches, or of three dimensions, packed.

    Returns (q, k, v, scales, lse_shift), for attention(q, k, v, **scales). scales: float32 q_scale, k_scale and v_scale, of each sequence and
    head of k (packed: of each head), as quantize_kv() makes them of a row: the largest magnitude divided by 448. Nothing has a gradient.
    scale="token": of each row of q and of k, as quantize_kv() makes them; v's stay those of heads.

    smooth_k: the mean of a head's keys leaves them first, so that what all keys share takes no bits. All scores of a row change by one
    number: o stays what it is, and lse is what attention() returns plus softmax_scale * lse_shift, [batch, heads_q, seqlen_q] as lse is.
    Not with softcap, sinks or a score of your own, which ask for scores themselves. Without it lse_shift is None.
    rotate: q and k are multiplied by one orthogonal matrix, Hadamard's of the largest power of 2 that divides head_dim, which spreads a
    large column over the others. Scores stay what they are. docs/BITS.md has errors with each.
    """
    import torch

    _checks.one_of("layout", layout, ("bshd", "bhsd"))
    _checks.one_of("scale", scale, ("head", "token"))
    smooth_k, rotate = _checks.flag("smooth_k", smooth_k), _checks.flag("rotate", rotate)
    for name, each in (("q", q), ("k", k), ("v", v)):
        if not isinstance(each, torch.Tensor):
            _checks.refuse_type(name, each, "a torch tensor")
        if each.dim() not in (3, 4) or each.dim() != q.dim() or not each.numel():
            raise InvalidError(f"{name} has shape {tuple(each.shape)}; q, k and v must have four dimensions, or packed three, and elements")
    packed, given = q.dim() == 3, (q, k, v)
    q, k, v = (_by_head(each.detach().float(), packed, layout) for each in given)
    heads = k.shape[1]
    if q.shape[1] % heads or v.shape[1] != heads or q.shape[-1] != k.shape[-1]:
        raise InvalidError(f"q, k and v have shapes {', '.join(str(tuple(each.shape)) for each in given)}, whose heads or head dims do not fit")
    shift = None
    if smooth_k:
        mean = k.mean(2, keepdim=True)
        k = k - mean
        shift = (q @ mean.transpose(2, 3).repeat_interleave(q.shape[1] // heads, 1)).squeeze(-1)
    if rotate:
        matrix = _hadamard(q.shape[-1] & -q.shape[-1], q)
        q, k = ((each.unflatten(-1, (-1, len(matrix))) @ matrix).flatten(-2) for each in (q, k))
    numbers, scales = [], {}
    for name, each in (("q", q), ("k", k), ("v", v)):
        of_rows = scale == "token" and name != "v"
        of_each, scales_of_each = quantize_kv(each if of_rows else each.unflatten(1, (heads, -1)).flatten(2), "e4m3")  # a head as one row
        numbers.append(_by_head(of_each.view(each.shape), packed, layout, back=True).contiguous())
        if of_rows:
            scales[f"{name}_scale"] = _by_head(scales_of_each, packed, layout, back=True)
        else:
            scales[f"{name}_scale"] = scales_of_each[0] if packed else scales_of_each.contiguous()
    return (*numbers, scales, shift[0] if packed and smooth_k else shift)


def _by_head(x, packed, layout, back=False):
    """As [batch, heads, rows, head_dim], or from that."""
    if packed:
        return x[0].transpose(0, 1) if back else x.transpose(0, 1)[None]
    return x if layout == "bhsd" else x.transpose(1, 2)


def _hadamard(size, like):
    """1 and -1 over the root of its size, [size, size], of the dtype of a tensor and beside it."""
    import torch

    two = like.new_tensor([[1.0, 1.0], [1.0, -1.0]]) * 0.5**0.5
    return torch.kron(two, _hadamard(size // 2, like)) if size > 1 else like.new_ones(1, 1)
