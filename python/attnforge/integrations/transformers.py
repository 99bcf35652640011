"""attn_implementation="attnforge" of transformers (5.17), and "paged|attnforge" of its continuous batching.

    from attnforge.integrations import transformers as attnforge_for_transformers
    attnforge_for_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attnforge", dtype="bfloat16")

Served: causal and full attention, padding on any side, packing by position ids or by cu_seq_lens, windows, soft caps, sinks, cross
attention, dynamic, static and sliding caches, head dims of v that differ, dense masks of any kind, and gradients. A mask is no dense
one unless a model makes it so: see masks.py. Refused by UnsupportedError: dropout of probabilities, which only acts in training.
"""

import functools
import os

import torch

from . import masks
from .adapter import attend, longest, options_of


def register(name="attnforge", packed_under_compile=True):
    """Makes `name` and "paged|name" known to transformers. Raises ImportError where there is none.

    packed_under_compile: torch.compile cannot see whether position ids say that rows are packed; with False each row of a batch is
    taken to be one sequence there, which is faster.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, attention_forward)
    AttentionInterface.register(f"paged|{name}", paged_attention_forward)
    AttentionMaskInterface.register(name, functools.partial(masks.mask_for, packed_under_compile=packed_under_compile))


def _options(module, query, scaling, is_causal, sliding_window, softcap, s_aux, dropout, keys):
    """Options of attention() for [batch, seqlen, heads, head_dim]. keys: how many there are."""
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    window = (-1, -1)
    if sliding_window is not None and (torch.compiler.is_compiling() or keys > sliding_window):
        window = (sliding_window - 1,) * 2
    deterministic = os.environ.get("FLASH_ATTENTION_DETERMINISTIC", "0") == "1"
    options = options_of(query, dropout, scaling, causal, window, softcap or 0.0, None, deterministic)
    if s_aux is not None:
        options["sinks"] = s_aux.float().contiguous()
    return options


def _of_model(module, *tensors):
    """float32 tensors of a model whose weights are not, as layer norms in float32 make them, in the weights' dtype."""
    if tensors[0].dtype != torch.float32 or torch.is_autocast_enabled("cuda"):
        return tensors
    weights = [layer.weight.dtype for layer in module.modules() if isinstance(layer, torch.nn.Linear)]
    half = weights and weights[0] in (torch.float16, torch.bfloat16)
    return tuple(each.to(weights[0]) for each in tensors) if half else tensors


def attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, sliding_window=None, softcap=None, s_aux=None,
    position_bias=None, cu_seq_lens_q=None, cu_seq_lens_k=None, max_length_q=None, max_length_k=None, **kwargs
):
    """query [batch, heads, seqlen, head_dim], key and value with their heads and lengths; attention_mask as masks.mask_for() made it, or
    a dense one. Returns (o [batch, seqlen, heads, head_dim], None)."""
    query, key, value = (each.transpose(1, 2) for each in _of_model(module, query, key, value))
    options = _options(module, query, scaling, is_causal, sliding_window, softcap, s_aux, dropout, key.shape[1])
    if attention_mask is None and cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        q, k, v = (each.flatten(0, 1) for each in (query, key, value))
        lengths = tuple(each.to(torch.int32) for each in (cu_seq_lens_q, cu_seq_lens_k))
        options.update(cu_seqlens=lengths, max_seqlen=(longest(max_length_q, q), longest(max_length_k, k)))
        return attend(q, k, v, **options)[0].unflatten(0, query.shape[:2]), None
    masks.apply(options, attention_mask, position_bias, query.shape[1], key.shape[1])
    return attend(query, key, value, **options)[0], None


def paged_attention_forward(module, q, k, v, attention_mask, cache=None, cu_seq_lens_q=None, cu_seq_lens_k=None, **kwargs):
    """Of continuous batching: q, k and v [1, heads, tokens, head_dim] of many sequences, whose keys so far are in `cache`."""
    window = getattr(module, "sliding_window", None) or None
    if isinstance(cu_seq_lens_k, dict):
        cu_seq_lens_k = cu_seq_lens_k["sliding_attention" if window else "full_attention"]
    if cache is not None:
        indices = {name: kwargs[name] for name in ("read_index", "write_index")}
        k, v = cache.update(key_states=k, value_states=v, layer_idx=module.layer_idx, **indices)  # [tokens, heads, head_dim]
    else:
        k, v = (each.transpose(1, 2)[0] for each in (k, v))
    q = q.transpose(1, 2)[0]
    options = options_of(q, 0.0, module.scaling, True, (window - 1, 0) if window else (-1, -1), kwargs.get("softcap") or 0.0, head=1)
    if kwargs.get("s_aux") is not None:
        options["sinks"] = kwargs["s_aux"].float().contiguous()
    options.update(cu_seqlens=tuple(each.to(torch.int32) for each in (cu_seq_lens_q, cu_seq_lens_k)))
    return attend(q, k, v, max_seqlen=(q.shape[0], k.shape[0]), **options)[0][None], None
