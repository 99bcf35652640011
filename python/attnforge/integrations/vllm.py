"""attnforge as an attention backend of vLLM (V1), out of its tree: the entry point attnforge of vllm.general_plugins calls register() in
each process, and `--attention-backend CUSTOM` chooses it.

Decoding, chunks of prompts and drafts go in one call of packed queries over pages: new rows of k and v are written by append_kv(), lengths
stay on the GPU, and rows after the last token are left alone. With `supports_batch_invariance` a sequence has the same bits whatever else
is in the batch. Interface-tested against stand-ins of vLLM's published classes; not run in vLLM.
"""

import os
from typing import NamedTuple

import torch
from vllm.v1.attention.backend import AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder

from .._errors import UnsupportedError
from ..flash_attn.kvcache import Cache, attend_after_append
from .adapter import alibi, options_of, refuse

_BACKEND = f"{__name__}.AttnforgeBackend"


def register():
    """Puts the backend where vLLM looks for CUSTOM. May be called again."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, _BACKEND)


class Metadata(NamedTuple):
    """What a step's layers share. query_start_loc: int32 [batch + 1]; seq_lens: int32 [batch], before: without this step's tokens."""

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    before: torch.Tensor
    block_table: torch.Tensor
    causal: bool = True


class AttnforgeBackend(AttentionBackend):
    accept_output_buffer = True
    forward_includes_kv_cache_update = True
    supported_dtypes = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_name():
        return "CUSTOM"  # vLLM compares it with the name in its enum

    @staticmethod
    def get_impl_cls():
        return Impl

    @staticmethod
    def get_builder_cls():
        return Builder

    @staticmethod
    def get_supported_kernel_block_sizes():
        return [16, 32, 64, 128]

    @staticmethod
    def get_kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size, cache_dtype_str="auto"):
        if block_size % 8:
            raise UnsupportedError(f"block_size={block_size} must be a multiple of 8")
        return num_blocks, 2, block_size, num_kv_heads, head_size

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension=False):
        return tuple(range(5 + include_num_layers_dimension))

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size % 8 == 0 and head_size <= 512

    @classmethod
    def supports_sink(cls):
        return True

    @classmethod
    def supports_batch_invariance(cls):
        return True

    @classmethod
    def supports_non_causal(cls):
        return True

    @classmethod
    def supports_attn_type(cls, attn_type):
        return attn_type == "decoder"


class Builder(AttentionMetadataBuilder):
    cudagraph_support = _cudagraph_support = AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._before = torch.empty(0, dtype=torch.int32, device=device)  # one place, as graphs want it

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        starts, lengths = common.query_start_loc, common.seq_lens
        if self._before.shape[0] < lengths.shape[0]:
            self._before = torch.empty_like(lengths)
        before = torch.sub(lengths, starts.diff(), out=self._before[: lengths.shape[0]])
        causal = getattr(common, "causal", True)
        return Metadata(common.num_actual_tokens, common.max_query_len, starts, lengths, before, common.block_table_tensor, causal)


class Impl(AttentionImpl):
    can_return_lse_for_decode = True

    def __init__(
        self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
        logits_soft_cap=None, attn_type="decoder", kv_sharing_target_layer_name=None, sinks=None, **others
    ):
        if attn_type != "decoder" or kv_cache_dtype not in AttnforgeBackend.supported_kv_cache_dtypes:
            raise UnsupportedError(f"attn_type={attn_type!r} with kv_cache_dtype={kv_cache_dtype!r}: caches of decoders in 16 bits are served")
        refuse(**{name: (value, "the backend does not have it") for name, value in others.items()})
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, scale, num_kv_heads or num_heads
        self.window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0)
        self.softcap, self.sinks = logits_soft_cap or 0.0, sinks
        self.alibi_slopes = None if alibi_slopes is None else torch.as_tensor(alibi_slopes, dtype=torch.float32)
        self.writes = kv_sharing_target_layer_name is None
        self.batch_invariant = os.environ.get("VLLM_BATCH_INVARIANT", "0") == "1"

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        """query, output [tokens, heads, head_size], key and value with their heads; kv_cache as get_kv_cache_shape() has it. Returns
        output, of which rows after num_actual_tokens are not touched."""
        refuse(output_scale=(output_scale, "outputs are not quantised"), output_block_scale=(output_block_scale, "outputs are not quantised"))
        if attn_metadata is None:  # a run that only measures memory
            return output.zero_()
        step, shape = attn_metadata, (-1, self.num_heads, self.head_size)
        tokens = step.num_actual_tokens
        q, out = (each.view(shape)[:tokens] for each in (query, output))
        options = options_of(q, 0.0, self.scale, step.causal, self.window, self.softcap, head=1)
        if self.alibi_slopes is not None:
            self.alibi_slopes = self.alibi_slopes.to(q.device)
            options.update(alibi(self.alibi_slopes, self.num_heads, step.causal))
        if self.sinks is not None:
            options["sinks"] = self.sinks.float().contiguous()
        options.update(batch_invariant=self.batch_invariant, out=out)
        k = v = None
        if self.writes and key is not None:
            k, v = (each.view(-1, self.num_kv_heads, self.head_size)[:tokens] for each in (key, value))
        cache = Cache(*kv_cache.unbind(1), step.seq_lens if k is None else step.before, step.block_table)
        starts = step.query_start_loc
        attend_after_append(q, k, v, cache, (None, None, False), options, False, starts, starts, step.max_query_len)
        return output
