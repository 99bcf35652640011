"""llama_in_pages.py - a small random Llama decodes three prompts together, its keys and values in pages of a KvCache.

The model's code is one function; it is run with attention in pages, token by token, and with dense attention of PyTorch's, all
tokens at once, and the logits are compared. Where PyTorch or a GPU is missing it says so, and shows the kernel that an H100 would get.
"""

import sys

import attnforge

LAYERS, HEADS, HEADS_KV, HEAD_DIM, VOCABULARY = 2, 8, 2, 64, 512
WIDTH, MAX_LEN, STEPS = HEADS * HEAD_DIM, 256, 20


# ---- 1. The model: attend(layer, q, k, v) is all that knows of caches ----


def random_weights(torch):
    def matrix(rows, columns):
        return (torch.randn(rows, columns, device="cuda") / rows**0.5).half()

    shapes = {
        "q": (WIDTH, HEADS * HEAD_DIM),
        "k": (WIDTH, HEADS_KV * HEAD_DIM),
        "v": (WIDTH, HEADS_KV * HEAD_DIM),
        "o": (HEADS * HEAD_DIM, WIDTH),
        "gate": (WIDTH, 2 * WIDTH),
        "up": (WIDTH, 2 * WIDTH),
        "down": (2 * WIDTH, WIDTH),
    }
    layers = [{name: matrix(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
    return {"embedding": matrix(VOCABULARY, WIDTH) * VOCABULARY**0.5, "layers": layers, "out": matrix(WIDTH, VOCABULARY)}


def logits_of(torch, weights, tokens, attend):
    """[batch, rows, vocabulary] for tokens [batch, rows]."""

    def normal(x):
        return torch.nn.functional.rms_norm(x, (WIDTH,))

    x = weights["embedding"][tokens]
    for index, layer in enumerate(weights["layers"]):
        y = normal(x)
        q, k, v = ((y @ layer[name]).unflatten(-1, (-1, HEAD_DIM)) for name in "qkv")  # [batch, rows, heads, head_dim]
        x = x + attend(index, q, k, v).flatten(-2) @ layer["o"]
        y = normal(x)
        x = x + (torch.nn.functional.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
    return (normal(x) @ weights["out"]).float()


def rope_tables(torch):
    """Cosines and sines of all positions, float32 [MAX_LEN, HEAD_DIM / 2]."""
    frequencies = 10000 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM)
    angles = torch.arange(MAX_LEN, device="cuda")[:, None] * frequencies
    return angles.cos(), angles.sin()


# ---- 2. Attention: dense, and in pages ----


def dense(torch, tables):
    """All rows of a sequence at once."""

    def rotated(x):
        cos, sin = (table[: x.shape[1], None] for table in tables)
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).half()

    def attend(layer, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (rotated(q), rotated(k), v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)

    return attend


def in_pages(cache, sequences, tables):
    """The rows that are new: they go to the cache, and the queries, rotated with them, see all rows of it."""

    def attend(layer, q, k, v):
        q = cache.append(k, v, sequences, layer, q=q, rope=tables)
        return cache.attend(q, layer)

    return attend


def without_gpu(missing):
    """Compiles for a GPU that is not here; NVRTC is all that this needs."""
    print(f"{missing}; this is what a Hopper GPU would run:")
    found = attnforge.inspect(
        f"fwd fp16 batch=3 num_heads={HEADS}:{HEADS_KV} seqlen=1:{MAX_LEN} head_dim={HEAD_DIM} causal lengths=used page_size=16",
        arch="sm_90a",
        max_candidates=1,
    )
    print(found["config"])
    return 0


def main():
    try:
        import torch
    except ImportError:
        return without_gpu("PyTorch is not installed (pip install torch)")
    if not torch.cuda.is_available():
        return without_gpu("PyTorch sees no GPU")
    torch.manual_seed(1)
    weights, tables = random_weights(torch), rope_tables(torch)
    prompts = {"a": 17, "b": 5, "c": 40}
    texts = {name: torch.randint(VOCABULARY, (1, length), device="cuda") for name, length in prompts.items()}
    # 12 pages of 16 rows are enough for these three; three sequences of MAX_LEN rows would take 48.
    cache = attnforge.KvCache(3, MAX_LEN, HEADS_KV, HEAD_DIM, page_size=16, layers=LAYERS, num_pages=12, dtype=torch.float16)

    # ---- 3. Each prompt alone, then a token of each at a time ----
    logits = {}
    for name, text in texts.items():
        logits[name] = [logits_of(torch, weights, text, in_pages(cache, [name], tables))]
    for _ in range(STEPS):
        new = torch.cat([logits[name][-1][:, -1:].argmax(-1) for name in texts])  # [3, 1]: the likeliest
        of_step = logits_of(torch, weights, new, in_pages(cache, list(texts), tables))
        for i, name in enumerate(texts):
            texts[name] = torch.cat((texts[name], new[i : i + 1]), dim=1)
            logits[name].append(of_step[i : i + 1])

    # ---- 4. The same tokens at once, without a cache ----
    for name, text in texts.items():
        whole = logits_of(torch, weights, text, dense(torch, tables))
        difference = float((torch.cat(logits[name], dim=1) - whole).abs().max())
        print(f"{name}: {text.shape[1]} tokens, logits up to {float(whole.abs().max()):.1f}, differ from dense by at most {difference:.3f}")
    for name in prompts:
        cache.release(name)
    print(f"{cache.free_pages} pages are free")
    return 0


if __name__ == "__main__":
    sys.exit(main())
