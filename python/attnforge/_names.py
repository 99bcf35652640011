"""Names that other libraries have for options of attention(), and what they are here; docs/COMING_FROM.md has them in tables.

torch.compile traces refuse_name()."""

from ._errors import InvalidError

_DROPOUT = "dropout is not implemented: leave it out, or put it on what comes out"
_LEAVE = "leave it out: a plan decides it"
_LENGTHS = "cu_seqlens=, one array for both or a pair (of q, of k)"
_LONGEST = "max_seqlen=, a number or a pair (of q, of k)"
_LSE = "return_lse="
_SCALE = "softmax_scale="
_TEXT = "score= or mask=, C++ texts (docs/USER_CODE.md); attnforge.integrations.flex takes Python functions"
_USED = "used_kv=, int32 [batch] on the GPU, or a pair (used_q, used_kv)"
_WINDOW = "window=(left, right), None for open"

OTHERS = {
    # torch's scaled_dot_product_attention
    "is_causal": "causal=, whose last query sees the last key (torch's first query sees the first one: the same where lengths are equal)",
    "scale": _SCALE,
    "dropout_p": _DROPOUT,
    "enable_gqa": "nothing: k and v may have fewer heads; leave it out",
    # flash_attn, and what copies its words
    "window_size": _WINDOW,
    "alibi_slopes": "**attnforge.texts.alibi(slopes), with causal=True",
    "return_attn_probs": _LSE,
    "return_softmax_lse": _LSE,
    "cu_seqlens_q": _LENGTHS,
    "cu_seqlens_k": _LENGTHS,
    "max_seqlen_q": _LONGEST,
    "max_seqlen_k": _LONGEST,
    "seqused_q": _USED,
    "seqused_k": _USED,
    "cache_seqlens": _USED,
    "block_table": "page_table=",
    "cache_leftpad": "not implemented: sequences begin with their first row",
    "rotary_cos": "rope=(cos, sin), of attention() or append_kv()",
    "rotary_sin": "rope=(cos, sin), of attention() or append_kv()",
    "rotary_interleaved": "rope_interleaved=",
    "num_splits": _LEAVE,
    "pack_gqa": _LEAVE,
    "sm_margin": _LEAVE,
    "q_descale": "q_scale=",
    "k_descale": "k_scale=",
    "v_descale": "v_scale=",
    "s_aux": "sinks=",
    # FlexAttention
    "score_mod": _TEXT,
    "mask_mod": _TEXT,
    "kernel_options": _LEAVE,
    "return_aux": _LSE,
    # xFormers
    "attn_bias": "attn_mask= of a tensor, causal= of a LowerTriangularMask, cu_seqlens= and max_seqlen= of a BlockDiagonalMask",
    "p": _DROPOUT,
    # and others
    "attention_mask": "attn_mask=",
    "bias": "attn_mask=",
    "dropout": _DROPOUT,
    "sm_scale": _SCALE,
    "scaling": _SCALE,
    "sliding_window": _WINDOW,
    "local_window_size": _WINDOW,
    "logits_soft_cap": "softcap=",
    "soft_cap": "softcap=",
    "tensor_layout": 'layout="bshd" or "bhsd"',
}


def _is_like(name, other):
    """Whether letters have changed places, or one begins the other."""
    return sorted(name) == sorted(other) or len(name) > 3 and (name.startswith(other) or other.startswith(name))


def refuse_name(name, there):
    """Raises the TypeError for an option that is none of those that are there."""
    known = ", ".join(there)
    if name in OTHERS:
        raise TypeError(f"got an unexpected keyword argument {name!r}; here: {OTHERS[name]} (docs/COMING_FROM.md). There are {known}")
    alike = [each for each in there if _is_like(name.replace("_", ""), each.replace("_", ""))]
    meant = f"did you mean {alike[0]}? There are" if alike else "there are"
    raise TypeError(f"got an unexpected keyword argument {name!r}; {meant} {known}")


_BHSD = 'as [batch, heads, seqlen, head_dim], which torch\'s scaled_dot_product_attention has, they need layout="bhsd"'
_MOST_HEADS = 128  # more than any model has of keys
_warned = False


def check_heads(q, k, options):
    """Raises InvalidError unless heads of q are a multiple of those of k. Says by a warning, once, where heads and rows of Arrays seem to
    have changed places."""
    (_, row, head), (_, row_kv, head_kv) = options.places, options.places_kv
    of_q, of_k = q.shape[head], k.shape[head_kv]
    may_swap = options.layout == "bshd" and options.shares_batch
    if of_k and of_q % of_k:
        swapped = may_swap and k.shape[row_kv] and q.shape[row] % k.shape[row_kv] == 0
        hint = f"; {_BHSD}" if swapped else ""
        raise InvalidError(f"q {tuple(q.shape)} has {of_q} heads, which is no multiple of the {of_k} of k {tuple(k.shape)}{hint}")
    global _warned
    if _warned or not may_swap or min(of_q, of_k) <= _MOST_HEADS or q.shape[row] >= of_q or k.shape[row_kv] >= of_k:
        return
    _warned = True
    import warnings

    text = f"q {tuple(q.shape)} and k {tuple(k.shape)} are taken for [batch, seqlen, heads, head_dim], with {of_q} and {of_k} heads; {_BHSD}"
    warnings.warn(text, UserWarning, stacklevel=5)
