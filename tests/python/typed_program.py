"""A program that uses all that is public, for mypy --strict and pyright (python_types_test.py); nobody runs it. Tensor stands for a framework's."""

import attnforge
from attnforge import BlockMask, KvCache, Problem, integrations, texts
from attnforge.flash_attn import bert_padding, flash_attn_func, flash_attn_interface, flash_attn_varlen_func, flash_attn_with_kvcache, v3
from attnforge.flash_attn.layers import rotary
from attnforge.integrations import diffusers, flex, jax, sdpa, sglang, transformers, vllm


class Tensor:
    shape: tuple[int, ...]


def forward(q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: BlockMask) -> Tensor:
    o: Tensor = attnforge.attention(q, k, v, causal=True, window=(1023, None), softmax_scale=0.1, softcap=30.0, layout="bhsd")
    o, lse = attnforge.attention(q, k, v, return_lse=True, out=(q, table), stream=7)
    o = attnforge.attention(q, k, v, cu_seqlens=(table, table), max_seqlen=(8, 9), score="s * slope[head]", args={"slope": table})
    o = attnforge.attention(q, k, v, used_kv=table, page_table=table, k_scale=table, v_scale=table, sinks=table, tf32=True)
    o = attnforge.attention(q, k, v, rope=(table, table), rope_interleaved=True, rope_offset=3, batch_invariant=True, deterministic=True)
    o = attnforge.attention(q, k, v, block_mask=mask, mask="k <= q", attn_mask=table, **texts.alibi(table))
    o, lse = attnforge.merge_states([o, o], [lse, lse], layout="bshd")
    o, lse = attnforge.reference(q, k, v, causal=True, return_lse=True)
    numbers, scales = attnforge.quantize_kv(k, "int4", "group64", zero=True)
    *of_8_bits, of_heads, shift = attnforge.quantize_qkv(q, k, v, smooth_k=True, rotate=True, layout="bhsd")
    q, k, v = attnforge.quantize_qkv(q, k, v)[:3]
    o = attnforge.attention(q, k, v, fast_sums=True, **attnforge.quantize_qkv(q, k, v)[3])
    seen: Tensor = attnforge.attention_weights(q, k, lse, rows=[-1], causal=True, page_table=table, used_kv=table)
    seen = attnforge.attention_weights(q, k, lse, rows=table, out=seen, attn_mask=table, stream=7)
    seen = attnforge.key_mass(q, k, seen, window=8, block_mask=mask)
    gradients = attnforge.attention_backward(q, k, v, o, lse, o, causal=True, accumulate=True, out=(q, k, v), dargs={"slope": table})
    return gradients[0] if numbers is scales else o


def caches(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    attnforge.append_kv(k, v, k, v, used_kv=table, page_table=table, used_kv_after=table)
    attnforge.prepare_append_kv(k, v, k, v, used_kv=table, page_table=table, used_kv_after=table, q=None)
    turned: Tensor = attnforge.append_kv(k, v, k, v, cu_seqlens=table, rope=(table, table), q=q)
    cache = KvCache(max_sequences=8, max_len=4096, heads_kv=8, head_dim=128, page_size=64, layers=2, dtype="int4", zero=True)
    cache.begin([300, 1], ["a", "b"])
    cache.append(k, v, ["a", "b"], layer=1, new_rows=[300, 1])
    turned = cache.append(k, v, q=turned, rope=(table, table))
    o, lse = cache.attend(turned, return_lse=True, window=8)
    rows: int = cache.length("a") + cache.free_pages + cache.max_len
    cache.trim("a", rows)
    cache.release("b")
    return lse if cache.k is cache.v else cache.attend(o, layer=1)


def masks(table: Tensor) -> list[str]:
    made = [
        BlockMask.from_bsr([0, 1], [0], 64, 64, partial=[1]),
        BlockMask.from_dense([[True]], 16),
        BlockMask.random(0.5, (64, 128), 1024, heads=2, seed=3),
        BlockMask.sliding_window(100, 0, 64, 1024),
        BlockMask.global_window(16, 100, 0, 64, 1024),
        BlockMask.strided(2, 4, 64, 1024),
        BlockMask.documents([100, 200], 64),
        BlockMask.from_text("d[q] == d[k]", 300, args={"d": table}, bits=True).to_host().transposed(),
    ]
    assert all(each.blocks >= each.full + each.partial and each.density <= 1.0 and not each.has_bits for each in made)
    return [f"{each.to_text()} {each.to_svg(head=0)} {len(each.lists())} {each.words} {each.seqlen[0]} {each.block[1]}" for each in made]


def problems(q: Tensor, table: Tensor) -> str:
    problem = Problem.parse("fwd bf16 seqlen=4096 causal")
    same = Problem(batch=2, num_heads_q=32, num_heads_kv=8, head_dim=128, causal=True)
    served, why = attnforge.supported(same, arch="sm_90a")
    source: str = attnforge.inspect(problem, arch="sm_90a", compile=False)["source"]
    attnforge.configure(policy="cached_only", time_limit_s=2.0, no_jit=True, family="", config="")
    found = attnforge.tune("fwd bf16 seqlen=4096", rigor="quick", progress=lambda so_far: so_far["done"] > 3)
    found = attnforge.tune(q, q, q, backward=True, causal=True, return_lse=True, time_limit_s=1.0)
    attnforge.plan_cache.limit = 100
    plans = [f"{plan.problem} {plan.config} {plan.family} {plan.provenance} {plan.layer} {plan.workspace_bytes}" for plan in attnforge.plan_cache]
    attnforge.plan_cache.clear()
    ready = [texts.relative_bias(table, 9), texts.tanh_cap(3.0), texts.documents(table), texts.prefix_lm(table), texts.dilated_window(9, 2)]
    compiles: int = attnforge.stats()["compiles"]
    with problem.handle():
        return f"{problem.words()} {problem.bucket()} {served} {why} {source} {found} {plans} {ready} {compiles} {attnforge.library_path()} {attnforge.version()}"


def errors() -> str:
    try:
        return attnforge.__version__
    except (attnforge.InvalidError, attnforge.UnsupportedError, attnforge.WorkspaceError, attnforge.CompileError) as error:
        return str(error)
    except (attnforge.CudaError, attnforge.NotReadyError, attnforge.NoDriverError, attnforge.AttnforgeError) as error:
        return str(error)
    except attnforge.PerformanceWarning as warning:
        return str(warning)


def names_of_others(q: Tensor, kv: Tensor, ends: Tensor) -> Tensor:
    integrations.install_as("flash_attn")
    sdpa.register(strict=True)
    transformers.register(packed_under_compile=False)
    vllm.register()
    sglang.register()
    jax.register()
    diffusers.enable("flash")
    flash_attn_func(q, q, q, causal=True, window_size=(3, 4))
    flash_attn_interface.flash_attn_kvpacked_func(q, kv, causal=True)
    flash_attn_interface.flash_attn_qkvpacked_func(kv)
    flash_attn_varlen_func(q, q, q, ends, ends, 8, 8, deterministic=True)
    flash_attn_interface.flash_attn_varlen_kvpacked_func(q, kv, ends, ends, 8, 8)
    flash_attn_interface.flash_attn_varlen_qkvpacked_func(kv, ends, 8)
    flash_attn_with_kvcache(q, q, q, k=q, v=q, cache_seqlens=ends, block_table=ends)
    v3.flash_attn_func(q, q, q)
    v3.flash_attn_qkvpacked_func(kv)
    v3.flash_attn_varlen_func(q, q, q, ends, ends, 8, 8)
    v3.flash_attn_with_kvcache(q, q, q)
    v3.flash_attn_combine(q, q)
    v3.get_scheduler_metadata()
    rows, indices, _, longest, _ = bert_padding.unpad_input(q, ends)
    bert_padding.unpad_input_for_concatenated_sequences(q, ends)
    bert_padding.pad_input(bert_padding.index_put_first_axis(bert_padding.index_first_axis(rows, indices), indices, longest), indices, 2, 8)
    bert_padding.index_first_axis_residual(q, indices)
    rotary.apply_rotary_emb(rotary.rotate_half(q), ends, ends, seqlen_offsets=3)
    rotary.apply_rotary_emb_qkv_(kv, ends, ends)
    rotary.apply_rotary_emb_kv_(kv, ends, ends)
    o, lse = flex.flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s, return_lse=True)
    o = flex.flex_attention(q, q, q, **flex.options_of())
    o, lse = jax.attention(q, q, q, causal=True, return_lse=True)
    o, _ = transformers.attention_forward(None, q, q, q, None)
    o, _ = transformers.paged_attention_forward(None, q, q, q, None)
    diffusers.attention(q, q, q, is_causal=True)
    return sdpa.scaled_dot_product_attention(o, q, q, is_causal=True) if longest else lse
