"""Ready-made score and mask texts: keyword arguments for attention()."""

from . import _checks

_MOST = 2**30


def alibi(slope):
    """Linear biases (Press et al. 2021), s + slope[head] * (k - q). slope: float32 [heads_q]."""
    return {"score": "s + slope[head] * (k - q)", "args": {"slope": slope}}


def relative_bias(table, reach):
    """A bias by the distance k - q, which is cut off at `reach` on both sides. table: float32 [heads_q, 2 * reach + 1]."""
    reach = _checks.integer("reach", reach, 0, _MOST)
    text = f"s + relative_bias[head * {2 * reach + 1} + min(max(k - q, -{reach}), {reach}) + {reach}]"
    return {"score": text, "args": {"relative_bias": table}}


def tanh_cap(cap):
    """cap * tanh(s / cap), as the built-in soft cap."""
    cap = _checks.number("cap", cap)
    return {"score": f"{cap!r}f * tanhf(s / {cap!r}f)"}


def documents(document_q, document_kv=None):
    """Queries see keys of their own document. Arrays: int32 [batch, seqlen], any numbers."""
    document_kv = document_q if document_kv is None else document_kv
    return {
        "mask": "document_q[batch * seqlen_q + q] == document_kv[batch * seqlen_kv + k]",
        "args": {"document_q": document_q, "document_kv": document_kv},
    }


def prefix_lm(prefix):
    """Causal, and all queries see the first prefix[batch] keys. prefix: int32 [batch]."""
    return {"mask": "k <= q + seqlen_kv - seqlen_q || k < prefix[batch]", "args": {"prefix": prefix}}


def dilated_window(reach, step):
    """Every `step`-th key up to `reach` positions away, on both sides."""
    reach, step = _checks.integer("reach", reach, 0, _MOST), _checks.integer("step", step, 1, _MOST)
    return {"mask": f"abs(k - q) <= {reach} && (k - q) % {step} == 0"}
