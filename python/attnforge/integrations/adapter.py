"""Arguments as flash_attn, transformers and torch's SDPA have them, as those of attention()."""

import torch

from .._attention import attention
from .._errors import UnsupportedError

_MOST_WINDOW = 2**30  # more keys than any sequence has, as some callers have it for all: 2^31 - 1
_DROPOUT = "dropout of probabilities is not there: pass 0, or put dropout on what comes out of the projection"


def refuse(**given):
    """Raises UnsupportedError for the first of what has no counterpart and is not left out."""
    for name, (value, why) in given.items():
        if value is not None and value is not False:
            raise UnsupportedError(f"{name}: {why}")


def alibi(slopes, heads, causal):
    """score and args of ALiBi as flash_attn has it: - slope |i + seqlen_k - seqlen_q - j|. slopes: float32 [heads] or [batch, heads]."""
    if slopes is None:
        return {}
    slope = "slope[head]" if slopes.dim() == 1 else f"slope[batch * {heads} + head]"
    apart = "(q + seqlen_kv - seqlen_q - k)"
    slopes = slopes.float().contiguous()
    return {"score": f"s - {slope} * {apart if causal else f'fabsf{apart}'}", "args": {"slope": slopes}}


def options_of(
    q, dropout_p=0.0, softmax_scale=None, causal=False, window=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, head=2
):
    """Options of attention(); only those that are not left out. head: the dimension of q that heads are in."""
    if dropout_p:
        raise UnsupportedError(f"dropout_p={dropout_p}: {_DROPOUT}")
    left, right = (-1 if side is None or side > _MOST_WINDOW else side for side in window)
    right = min(right, 0) if causal else right
    options = {"causal": True} if causal else {}
    if left >= 0 or right >= 0 and not causal:
        options["window"] = left, right
    if softcap:
        options["softcap"] = float(softcap)
    if deterministic:
        options["deterministic"] = True
    usual = q.shape[-1] ** -0.5
    options.update(alibi(alibi_slopes, q.shape[head], causal))
    if softmax_scale is not None and softmax_scale <= 0:  # which kernels have in a text alone
        options["score"] = options.get("score", "s").replace("s", f"s * ({softmax_scale / usual:.9e}f)", 1)
        softmax_scale = None
    if softmax_scale is not None and softmax_scale != usual or q.shape[-1] % 8:  # a problem that says the usual one is another problem
        options["softmax_scale"] = float(usual if softmax_scale is None else softmax_scale)
    return options


def longest(max_seqlen, tensor):
    """A bound of packed sequences' lengths that needs no read of the GPU."""
    return tensor.shape[0] if max_seqlen is None or isinstance(max_seqlen, torch.Tensor) else max_seqlen


def padded(*tensors):
    """Tensors whose head dims are multiples of 8, filled up with zeros, and whose last dimensions are contiguous."""
    return [_padded(each) for each in tensors]


def _padded(tensor):
    more = -tensor.shape[-1] % 8
    if more:
        return torch.nn.functional.pad(tensor, (0, more))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def attend(q, k, v, return_lse=False, **options):
    """attention() for any head dims; (o, lse), lse None where it was not asked for."""
    dim = v.shape[-1]
    q, k, v = padded(q, k, v)
    o, lse = attention(q, k, v, return_lse=True, **options) if return_lse else (attention(q, k, v, **options), None)
    return (o if dim % 8 == 0 else o[..., :dim]), lse
