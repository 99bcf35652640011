"""flex_programs.py - three programs written for PyTorch's flex_attention, line by line in attnforge's.

Each function has the lines of the one beside it: score_mod and mask_mod become texts, what they close over becomes args.
Where PyTorch or a GPU is missing it says so, and shows the kernels that an H100 would get.
"""

import sys

import attnforge

BATCH, HEADS, SEQLEN, DIM = 2, 8, 512, 64
CAP, WINDOW = 30.0, 128


# ---- 1. ALiBi under a causal mask ----


def alibi_in_flex(flex, q, k, v, slope):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + slope[h] * (kv_idx - q_idx)

    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    return flex.flex_attention(q, k, v, score_mod=score_mod, block_mask=flex.create_block_mask(mask_mod, BATCH, HEADS, SEQLEN, SEQLEN))


def alibi(q, k, v, slope):
    score = "s + slope[head] * (k - q)"

    return attnforge.attention(q, k, v, score=score, causal=True, layout="bhsd", args={"slope": slope})


# ---- 2. A soft cap and a sliding window ----


def capped_in_flex(flex, q, k, v):
    import torch

    def score_mod(score, b, h, q_idx, kv_idx):
        return CAP * torch.tanh(score / CAP)

    def mask_mod(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= WINDOW)

    return flex.flex_attention(q, k, v, score_mod=score_mod, block_mask=flex.create_block_mask(mask_mod, BATCH, HEADS, SEQLEN, SEQLEN))


def capped(q, k, v):
    score = "cap * tanhf(s / cap)"

    mask = "q >= k && q - k <= window"

    return attnforge.attention(q, k, v, score=score, mask=mask, layout="bhsd", args={"cap": CAP, "window": WINDOW})


# ---- 3. Documents in one sequence, each with a prefix that all of it sees ----


def documents_in_flex(flex, q, k, v, document, prefix_end):
    def mask_mod(b, h, q_idx, kv_idx):
        same = document[q_idx] == document[kv_idx]
        return same & ((q_idx >= kv_idx) | (kv_idx < prefix_end[document[q_idx]]))

    return flex.flex_attention(q, k, v, block_mask=flex.create_block_mask(mask_mod, BATCH, HEADS, SEQLEN, SEQLEN))


def documents(q, k, v, document, prefix_end):
    same = "document[q] == document[k]"
    mask = f"{same} && (q >= k || k < prefix_end[document[q]])"

    return attnforge.attention(q, k, v, mask=mask, layout="bhsd", args={"document": document, "prefix_end": prefix_end})


def without_gpu(missing):
    """Compiles for a GPU that is not here; NVRTC is all that this needs."""
    print(f"{missing}; this is what a Hopper GPU would run:")
    problem = attnforge.Problem(batch=BATCH, num_heads_q=HEADS, seqlen_q=SEQLEN, head_dim=DIM, causal=True, args="float* slope")
    texts = {"score": "s + slope[head] * (k - q)"}
    found = attnforge.inspect(attnforge.Problem(**{**vars(problem), **texts}), arch="sm_90a")
    print(found["config"])
    return 0


def main():
    try:
        import torch
        from torch.nn.attention import flex_attention as flex
    except ImportError:
        return without_gpu("PyTorch with flex_attention is not installed (pip install torch)")
    if not torch.cuda.is_available():
        return without_gpu("PyTorch sees no GPU")
    q, k, v = (torch.randn(BATCH, HEADS, SEQLEN, DIM, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    slope = 2.0 ** -torch.arange(1, HEADS + 1, dtype=torch.float32, device="cuda")
    document = (torch.arange(SEQLEN, device="cuda") // 100).to(torch.int32)
    prefix_end = (torch.arange(6, device="cuda") * 100 + 20).to(torch.int32)

    def compare(name, ours, theirs):
        print(f"{name}: differs from flex_attention's by at most {float((ours.float() - theirs.float()).abs().max()):.3f}")

    compare("ALiBi", alibi(q, k, v, slope), alibi_in_flex(flex, q, k, v, slope))
    compare("a capped window", capped(q, k, v), capped_in_flex(flex, q, k, v))
    compare("documents", documents(q, k, v, document, prefix_end), documents_in_flex(flex, q, k, v, document, prefix_end))
    return 0


if __name__ == "__main__":
    sys.exit(main())
