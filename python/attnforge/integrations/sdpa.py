"""attnforge beneath torch.nn.functional.scaled_dot_product_attention, as one of torch's flash attention implementations (torch 2.11).

    from attnforge.integrations import sdpa
    sdpa.register()
    torch.nn.attention.activate_flash_attention_impl("ATTNFORGE")   # and restore_flash_attention_impl() for torch's own
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

torch asks whether its own flash kernels would serve a call before it calls one: no attn_mask, head dims up to 256, float16 or bfloat16.
Nested tensors and torch.nn.attention.varlen are served too. What attnforge does not serve (dropout) goes to torch's kernel, with a
PerformanceWarning that has the reason, once for each; with register(strict=True) it is an UnsupportedError.
"""

import warnings

import torch

from .._gradients import autograd
from .._attention import attention
from .._gradients.backward import attention_backward
from .._errors import InvalidError, PerformanceWarning, UnsupportedError
from .adapter import alibi, attend, options_of

_NAMES = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward",
    "_flash_attention_forward",
    "_flash_attention_backward",
)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch's function by attnforge, for what torch gives to no flash kernel: attn_mask, any head dims, lengths of q and k that differ.

    query [batch, heads, seqlen, head_dim]. attn_mask: as attention() has it; floats have a gradient. is_causal is aligned at the top left,
    as torch has it. Raises UnsupportedError for dropout.
    """
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise UnsupportedError(f"query has {query.shape[1]} heads and key {key.shape[1]}: enable_gqa=True says that this is meant")
    if attn_mask is not None and is_causal:
        raise InvalidError("attn_mask and is_causal do not go together")
    rows, keys = query.shape[2], key.shape[2]
    options = options_of(query, dropout_p, scale, is_causal and rows == keys, head=1)
    if is_causal and rows != keys:
        options["mask"] = "k <= q"
    return attend(query, key, value, layout="bhsd", attn_mask=attn_mask, **options)[0]


def register(name="ATTNFORGE", strict=False):
    """Makes `name` known to torch.nn.attention.activate_flash_attention_impl(), and activates nothing. Raises UnsupportedError for a torch
    that has no such thing."""
    try:
        from torch.nn.attention import register_flash_attention_impl
    except ImportError:
        raise UnsupportedError(f"torch {torch.__version__} has no register_flash_attention_impl(); torch 2.11 has") from None
    register_flash_attention_impl(name, register_fn=lambda: Active(strict))


class Active:
    """Kernels of torch's flash attention that are attnforge's, until remove()."""

    def __init__(self, strict=False, key="CUDA"):
        """key: the dispatch key of the tensors."""
        self.strict, self.said, self.native = strict, set(), {}
        for name in _NAMES:  # before they are replaced
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                self.native[name] = torch.library.get_kernel(f"aten::{name}", key)
        self.library = torch.library.Library("aten", "IMPL", key)
        for name in _NAMES:
            self.library.impl(name, self._kernel(name), key, with_keyset=True)

    def remove(self):
        if self.library is not None:
            self.library._destroy()
        self.library = None

    def _kernel(self, name):
        ours = globals()[name]

        def kernel(keys, *arguments, **named):
            try:
                with torch.no_grad():
                    return ours(*arguments, **named)
            except (InvalidError, UnsupportedError) as error:
                return self._instead(name, error, keys, arguments, named)

        return kernel

    def _instead(self, name, error, keys, arguments, named):
        """What torch's kernel gives."""
        native = self.native.get(name)
        if self.strict or native is None:
            raise error
        if str(error) not in self.said:
            self.said.add(str(error))
            said = f"scaled_dot_product_attention runs torch's own kernel, not attnforge's: {error}"
            warnings.warn(said, PerformanceWarning, stacklevel=4)
        return native.call_boxed(keys, *arguments, **named)


# ---- The four kernels, with the arguments and results of aten's ----


def _of_dropout(query):
    """(rng_state, unused, debug_attn_mask), which nobody reads."""
    state = torch.empty(2, dtype=torch.uint64, device=query.device)
    return state, torch.empty((), dtype=torch.uint64, device=query.device), query.new_empty(0)


def _options(query, dropout_p, is_causal, scale, window=(None, None), debug=False):
    if debug:
        raise UnsupportedError("return_debug_mask: probabilities are not kept")
    return options_of(query, dropout_p, scale, is_causal, window)


def _last_contiguous(*tensors):
    return [each if each.stride(-1) == 1 else each.contiguous() for each in tensors]


def _scaled_dot_product_flash_attention(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """[batch, heads, seqlen, head_dim]; causal is aligned at the bottom right, as torch's kernel has it."""
    options = _options(query, dropout_p, is_causal, scale, debug=return_debug_mask)
    out = torch.empty_like(query), query.new_empty(query.shape[:3], dtype=torch.float32)
    o, lse = attention(*_last_contiguous(query, key, value), out=out, layout="bhsd", return_lse=True, **options)
    return o, lse, None, None, query.shape[2], key.shape[2], *_of_dropout(query)


def _scaled_dot_product_flash_attention_backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):
    options = _options(query, dropout_p, is_causal, scale)
    return _backward(grad_out, query, key, value, out, logsumexp, {**options, "layout": "bhsd"})


def _backward(grad_out, query, key, value, out, logsumexp, options):
    """Gradients with the strides of what they are of."""
    if torch.are_deterministic_algorithms_enabled():
        options["deterministic"] = True
    inputs = _last_contiguous(query, key, value)
    gradients = tuple(torch.empty_like(each) for each in inputs)
    dout = autograd.readable(torch, grad_out)
    return attention_backward(*inputs, out, logsumexp.contiguous(), dout, out=gradients, **options)


def _of_packed(cum_seq_q, cum_seq_k, max_q, max_k, seqused_k=None):
    if seqused_k is not None:
        raise UnsupportedError("seqused_k: packed keys are counted by cum_seq_k alone")
    return {} if cum_seq_q is None else {"cu_seqlens": (cum_seq_q, cum_seq_k), "max_seqlen": (max_q, max_k)}


def _flash_attention_forward(
    query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None, window_size_left=None,
    window_size_right=None, seqused_k=None, alibi_slopes=None
):
    """[tokens, heads, head_dim] with cum_seq_q, else [batch, seqlen, heads, head_dim]."""
    options = _options(query, dropout_p, is_causal, scale, (window_size_left, window_size_right), return_debug_mask)
    options.update(_of_packed(cum_seq_q, cum_seq_k, max_q, max_k, seqused_k), **alibi(alibi_slopes, query.shape[-2], is_causal))
    rows, heads = query.shape[-3:-1]
    out = torch.empty_like(query), query.new_empty((*query.shape[:-3], heads, rows), dtype=torch.float32)
    o, lse = attention(*_last_contiguous(query, key, value), out=out, return_lse=True, **options)
    return o, lse, *_of_dropout(query)


def _flash_attention_backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, rng_state, unused, *,
    scale=None, window_size_left=None, window_size_right=None
):
    options = _options(query, dropout_p, is_causal, scale, (window_size_left, window_size_right))
    return _backward(grad_out, query, key, value, out, logsumexp, {**options, **_of_packed(cum_seq_q, cum_seq_k, max_q, max_k)})
