"""attnforge as an attention backend of SGLang: the entry point attnforge of sglang.srt.plugins calls register(), and
`--attention-backend attnforge --page-size 64` (1, 2, 4 or a multiple of 8) chooses it.

Lengths are read on the GPU alone, so a step waits for nothing. Interface-tested against stand-ins of SGLang's published classes; not run
in SGLang.
"""

from typing import NamedTuple

import torch
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

from .._attention import attention
from .._errors import UnsupportedError
from .adapter import options_of


def register():
    """Makes "attnforge" known to SGLang. May be called again."""
    register_attention_backend("attnforge")(Backend)


class Step(NamedTuple):
    """What a step's layers share: lengths int32 [batch], starts int32 [batch + 1] of queries, and pages int32 [batch, columns]."""

    lengths: torch.Tensor
    starts: torch.Tensor
    pages: torch.Tensor
    max_queries: int


class Backend(AttentionBackend):
    needs_cpu_seq_lens = False
    support_triton = False

    def __init__(self, runner):
        super().__init__()
        self.page_size = runner.page_size
        if self.page_size % 8 and self.page_size not in (1, 2, 4):
            raise UnsupportedError(f"page_size={self.page_size} must be 1, 2, 4 or a multiple of 8: pass --page-size 64")
        self.req_to_token = runner.req_to_token_pool.req_to_token
        self.device, self.step, self._static = runner.device, None, None

    # ---- What a step has ----

    def _fill(self, batch, into=None):
        """The Step of a ForwardBatch; in the places of `into`, which a graph reads, if it is there."""
        rows = self.req_to_token[batch.req_pool_indices, :: self.page_size]
        pages = (rows // self.page_size).to(torch.int32)
        lengths = batch.seq_lens.to(torch.int32)
        count = lengths.shape[0]
        if batch.forward_mode.is_decode_or_idle():
            starts, most = torch.arange(count + 1, dtype=torch.int32, device=lengths.device), 1
        else:
            starts = torch.nn.functional.pad(batch.extend_seq_lens.cumsum(0), (1, 0)).to(torch.int32)
            most = max(batch.extend_seq_lens_cpu)
        if into is None:
            return Step(lengths, starts, pages.contiguous(), most)
        into = Step(into.lengths[:count], into.starts[: count + 1], into.pages[:count], most)
        for to, from_ in zip(into[:3], (lengths, starts, pages)):
            to.copy_(from_)
        return into

    def init_forward_metadata(self, forward_batch):
        self.step = self._fill(forward_batch)

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        empty = [torch.zeros(size, dtype=torch.int32, device=self.device) for size in (max_bs, max_bs + 1)]
        columns = -(-self.req_to_token.shape[1] // self.page_size)
        self._static = Step(*empty, torch.zeros(max_bs, columns, dtype=torch.int32, device=self.device), 1)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        """The host's part, before a graph is captured or replayed."""
        self.step = self._fill(forward_batch, self._static)

    def init_forward_metadata_in_graph(self, forward_batch):
        """Nothing: what a graph reads lies where it was."""

    def get_cuda_graph_seq_len_fill_value(self):
        return 1

    # ---- A layer ----

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None, **others):
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, sinks)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None, **others):
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, sinks)

    def _forward(self, q, k, v, layer, batch, save_kv_cache, sinks):
        """q [tokens, heads * head_dim]; returns [tokens, heads * v_head_dim]."""
        if layer.is_cross_attention:
            raise UnsupportedError("cross attention has a cache of its own, which the backend does not have")
        pool, step = batch.token_to_kv_pool, self.step
        if save_kv_cache and k is not None:
            pool.set_kv_buffer(layer, batch.out_cache_loc, k, v)
        q = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        causal = getattr(layer.attn_type, "value", layer.attn_type) != "encoder_only"
        reach = layer.sliding_window_size
        window = (-1, -1) if reach is None or reach < 0 else (reach, 0)
        options = options_of(q, 0.0, layer.scaling, causal, window, layer.logit_cap or 0.0, head=1)
        if sinks is not None:
            options["sinks"] = sinks.float().contiguous()
        caches = [each.unflatten(0, (-1, self.page_size)) for each in (pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id))]
        packed = {"cu_seqlens": step.starts, "max_seqlen": step.max_queries, "used_kv": step.lengths, "page_table": step.pages}
        return attention(q, *caches, **packed, **options).flatten(1)
