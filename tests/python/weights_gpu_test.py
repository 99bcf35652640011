#!/usr/bin/env python3
"""attention_weights() and key_mass() on a GPU: drawn problems beside eager fp64 torch, and what they cost.

usage: weights_gpu_test.py PACKAGE_FOLDER [SEED [COUNT]]
Exit 77 where there is no torch, or no GPU.
"""

import os
import random
import sys

sys.path.insert(0, os.path.abspath(sys.argv[1]))

try:
    import torch
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)
import attnforge  # noqa: E402

INFINITY = float("inf")


def integers(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def begins(lengths):
    return [sum(lengths[:i]) for i in range(len(lengths) + 1)]


def expected(q, k, options):
    """Weights [heads, queries, keys] in fp64 of a sequence's q [queries, heads, head_dim] and k."""
    (queries, heads, head_dim), (keys, heads_kv, _) = q.shape, k.shape
    k = k.double().repeat_interleave(heads // heads_kv, 1)
    s = torch.einsum("qhd,khd->hqk", q.double(), k) * options.get("softmax_scale", head_dim**-0.5)
    i, j = torch.arange(queries, device="cuda")[:, None], torch.arange(keys, device="cuda")[None]
    position = i + keys - queries
    if "softcap" in options:
        s = options["softcap"] * torch.tanh(s / options["softcap"])
    if "score" in options:
        s = s + options["args"]["slope"].double()[:, None, None] * (j - i)
    left, right = options.get("window", (None, 0 if options.get("causal") else None))
    seen = torch.ones(queries, keys, dtype=torch.bool, device="cuda")
    if left is not None:
        seen &= j >= position - left
    if right is not None:
        seen &= j <= position + right
    if "mask" in options:
        seen &= (i + j) % 3 != 0
    s = s.masked_fill(~seen, -INFINITY)
    all_scores = s
    if "sinks" in options:
        all_scores = torch.cat([s, options["sinks"].double()[:, None, None].expand(-1, queries, 1)], -1)
    if all_scores.shape[-1] == 0:
        return s
    lse = torch.logsumexp(all_scores, -1, keepdim=True)
    return torch.exp(s - torch.where(lse == -INFINITY, 0, lse))


def drawn_options(draw, heads):
    options = {}
    if draw.random() < 0.5:
        options["causal"] = True
    elif draw.random() < 0.5:
        options["window"] = draw.choice([None, 0, 30]), draw.choice([None, 0, 9])
    if draw.random() < 0.3:
        options["softcap"] = 15.0
    if draw.random() < 0.3:
        options["softmax_scale"] = 0.21
    if draw.random() < 0.3:
        options.update(score="s + slope[head] * (k - q)", args={"slope": torch.randn(heads, device="cuda") * 0.05})
    if draw.random() < 0.3:
        options["mask"] = "(q + k) % 3 != 0"
    if draw.random() < 0.3:
        options["sinks"] = torch.randn(heads, device="cuda")
    return options


def drawn_problem(draw):
    """(q, k, options of the call, [(q, k)] of each sequence, keys of the result)."""
    dtype = draw.choice([torch.bfloat16, torch.float16, torch.bfloat16, torch.float32])
    heads_kv, batch, head_dim = draw.choice([1, 2, 3]), draw.randint(1, 4), 8 * draw.randint(1, draw.choice([16, 32]))
    heads = heads_kv * draw.choice([1, 2, 5])
    queries, keys = draw.choice([1, 3, 64, 65, 200, 700]), draw.choice([1, 64, 130, 500, 1200])
    options, kind = drawn_options(draw, heads), draw.choice(["fixed", "bhsd", "used", "packed", "pages"])

    def new(*shape):
        return torch.randn(*shape, device="cuda").to(dtype)

    of_q, of_k = ([most] + [draw.randint(0, most) for _ in range(batch - 1)] for most in (queries, keys))
    if kind == "packed":
        q, k = new(sum(of_q), heads, head_dim), new(sum(of_k), heads_kv, head_dim)
        options.update(cu_seqlens=(integers(begins(of_q)), integers(begins(of_k))), max_seqlen=(queries, keys))
        return q, k, options, list(zip(q.split(of_q), k.split(of_k))), keys
    q = new(batch, queries, heads, head_dim)
    if kind == "pages":
        size = draw.choice([1, 2, 16, 64])
        columns = -(-keys // size)
        pool = new(batch * columns + 3, size, heads_kv, head_dim)
        table = torch.randperm(batch * columns, device="cuda").reshape(batch, columns).int()
        options.update(page_table=table, used_kv=integers(of_k))
        rows = [pool[table[i].long()].reshape(-1, heads_kv, head_dim)[: of_k[i]] for i in range(batch)]
        return q, pool, options, list(zip(q, rows)), columns * size
    k = new(batch, keys, heads_kv, head_dim)
    if kind == "used":
        options["used_kv"] = integers(of_q), integers(of_k)
        return q, k, options, [(q[i, : of_q[i]], k[i, : of_k[i]]) for i in range(batch)], keys
    sequences = list(zip(q, k))
    if kind == "bhsd":
        options["layout"] = kind
        q, k = q.transpose(1, 2).contiguous(), k.transpose(1, 2)
    return q, k, options, sequences, keys


def is_right(draw):
    q, k, options, sequences, width = drawn_problem(draw)
    o, lse = attnforge.attention(q, k, k, return_lse=True, **options)
    before = o.nan_to_num(), lse.nan_to_num()
    most = max(len(each) for each, _ in sequences)
    listed = draw.choice([None, [-1], [0, -1, 5, 5], [draw.randint(-most, most - 1) for _ in range(70)]])
    rows = integers(listed) if listed and draw.random() < 0.5 else listed
    listed = range(most) if listed is None else listed
    weights = attnforge.attention_weights(q, k, lse, rows=rows, **options)
    mass, again = (attnforge.key_mass(q, k, lse, **options) for _ in range(2))
    assert torch.equal(mass, again), "sums differ from call to call"
    assert torch.equal(before[0], o.nan_to_num()) and torch.equal(before[1], lse.nan_to_num()), "o or lse changed"
    assert weights.shape == (*mass.shape[:2], len(listed), width), weights.shape
    worst = 0.0
    for i, (own_q, own_k) in enumerate(sequences):
        of_all = expected(own_q, own_k, options)
        wanted, sums = torch.zeros_like(weights[i], dtype=torch.double), torch.zeros_like(mass[i], dtype=torch.double)
        for at, row in enumerate(listed):
            row = row + len(own_q) if row < 0 else row
            if 0 <= row < len(own_q):
                wanted[:, at, : len(own_k)] = of_all[:, row]
        sums[:, : len(own_k)] = of_all.sum(1)
        worst = max(worst, (weights[i] - wanted).abs().max().item(), ((mass[i] - sums).abs() / (1 + sums)).max().item())
    right = worst < (2e-4 if q.dtype == torch.float32 else 2e-3)  # of the forward's lse
    words = [f"{name}={value}" if isinstance(value, (bool, int, float, str)) else name for name, value in options.items()]
    print("right" if right else "WRONG", f"{worst:.1e}", str(q.dtype)[6:], tuple(q.shape), tuple(k.shape), *words, flush=True)
    return right


def milliseconds(call, times=10):
    call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(times):
        call()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / times


def say_times(seqlen, heads=32, head_dim=128):
    q, k, v = (torch.randn(1, seqlen, heads, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    _, lse = attnforge.attention(q, k, v, causal=True, return_lse=True)
    rows = torch.arange(seqlen - 32, seqlen, device="cuda", dtype=torch.int32)
    hidden = torch.full((seqlen, seqlen), -INFINITY, device="cuda", dtype=torch.bfloat16).triu(1)

    def eager():
        s = torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1)) * head_dim**-0.5 + hidden
        return torch.softmax(s, -1, dtype=torch.float32).sum(2)

    times = {
        "key_mass": lambda: attnforge.key_mass(q, k, lse, causal=True),
        "weights of 32 rows": lambda: attnforge.attention_weights(q, k, lse, rows=rows, causal=True),
        "forward": lambda: attnforge.attention(q, k, v, causal=True),
        "sums by eager torch": eager,
    }
    print(f"causal, {heads} heads of {head_dim}, {seqlen} keys:", ", ".join(f"{name} {milliseconds(f):.3f} ms" for name, f in times.items()))


def main(seed=1, count=40):
    attnforge.configure(policy="estimate")
    torch.manual_seed(seed)
    right = [is_right(random.Random(seed * 1000 + i)) for i in range(count)]
    print(sum(right), "of", count, "right, seed", seed)
    say_times(4096)
    return int(not all(right))


sys.exit(main(*map(int, sys.argv[2:])))
