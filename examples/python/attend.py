"""attend.py - attention of PyTorch's tensors: a layer, packed prompts, a KV cache, a CUDA graph.

Where PyTorch or a GPU is missing it says so, and shows the kernel that an H100 would get.
"""

import sys

import attnforge


def without_gpu(missing):
    """Compiles for a GPU that is not here; NVRTC is all that this needs."""
    print(f"{missing}; this is what a Hopper GPU would run:")
    found = attnforge.inspect("fwd bf16 batch=2 num_heads=8:2 seqlen=512 head_dim=64 causal", arch="sm_90a")
    print(found["config"])
    return 0


def largest_difference(a, b):
    return float((a.float() - b.float()).abs().max())


def main():
    try:
        import torch
    except ImportError:
        return without_gpu("PyTorch is not installed (pip install torch)")
    if not torch.cuda.is_available():
        return without_gpu("PyTorch sees no GPU")
    bf16 = {"dtype": torch.bfloat16, "device": "cuda"}

    # ---- 1. A layer: [batch, seqlen, heads, head_dim], 8 query heads share 2 of keys ----
    q, k, v = (torch.randn(2, 512, heads, 64, **bf16) for heads in (8, 2, 2))
    o = attnforge.attention(q, k, v, causal=True)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    print(f"a layer: differs from PyTorch's by at most {largest_difference(o, expected.transpose(1, 2)):.3f}")

    # ---- 2. Prompts of 17, 5 and 300 tokens, packed: no padding. cu_seqlens stays on the GPU ----
    q, k, v = (torch.randn(322, heads, 64, **bf16) for heads in (8, 2, 2))
    cu_seqlens = torch.tensor([0, 17, 22, 322], dtype=torch.int32, device="cuda")
    o = attnforge.attention(q, k, v, causal=True, cu_seqlens=cu_seqlens, max_seqlen=512)
    print(f"packed prompts: {tuple(o.shape)}")

    # ---- 3. Decode: one new token a sequence, a cache of 512 rows of which used_kv[i] count ----
    q = torch.randn(4, 1, 8, 64, **bf16)
    k, v = (torch.randn(4, 512, 2, 64, **bf16) for _ in range(2))
    used_kv = torch.tensor([17, 5, 300, 512], dtype=torch.int32, device="cuda")
    out = torch.empty_like(q)
    attnforge.attention(q, k, v, causal=True, used_kv=used_kv, out=out)
    print(f"a KV cache: {tuple(out.shape)}")

    # ---- 4. The same as a CUDA graph, captured after a first call; lengths may change between replays ----
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attnforge.attention(q, k, v, causal=True, used_kv=used_kv, out=out)
    used_kv -= 1  # in place: the graph reads this address
    graph.replay()
    again = attnforge.attention(q, k, v, causal=True, used_kv=used_kv)
    print(f"a CUDA graph: differs from a call by at most {largest_difference(out, again):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
