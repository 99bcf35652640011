"""Times packed sequences of five distributions of lengths: attnforge beside the variable-length kernels of FlashAttention-3 and
-4 on the same tensors, and beside attnforge's own dense kernel on the same work.

    python3 bench/varlen.py --tune quick --name varlen
    python3 bench/varlen.py --tokens 16384 --heads 16 --head-dim 128 --rounds 21 --out times.csv

Times are as rounds.py says. "dense" is attnforge on equal sequences as long as a token's sequence is on average (sum of squares / sum), as
many as have the same work; its time is scaled by what rounding leaves of the work.
"""

import functools
import math
import random
import statistics
import sys

import figures
import peer_kernels
import rounds

COLUMNS = "distribution,causal,sequences,tokens,longest,heads,head_dim,impl,ms,tflops,ratio,error,rounds,spread,late,note".split(",")
# ratio: of the implementation's time to attnforge's.


def drawn(tokens, draw):
    """Lengths that sum to `tokens`: the last one is cut."""
    lengths = []
    while sum(lengths) < tokens:
        lengths.append(min(draw(), tokens - sum(lengths)))
    return lengths


def log_normal(tokens, least, most, rng):
    return drawn(tokens, lambda: int(min(most, max(least, rng.lognormvariate(math.log(1024), 1.0)))))


def uniform(tokens, least, most, rng):
    return drawn(tokens, lambda: rng.randint(least, most))


def distributions(tokens, seed):
    """{name: lengths} that sum to `tokens`."""
    rng = random.Random(seed)
    half = tokens // 2
    return {
        "log_normal": log_normal(tokens, 128, 8192, rng),
        "uniform": uniform(tokens, 128, 2048, rng),
        "equal": [1024] * (tokens // 1024),
        "one_long": [half, *uniform(tokens - half, 64, 512, rng)],
        "short": uniform(tokens, 16, 256, rng),
    }


def pairs(length, causal):
    return length * (length + 1) // 2 if causal else length * length


def flops(lengths, causal, args):
    return 4.0 * args.heads * args.head_dim * sum(pairs(length, causal) for length in lengths)


def dense_run(lengths, causal, args, torch, attnforge):
    """(function, how much of the work it does, its shape) of equal sequences."""
    length = max(128, round(sum(x * x for x in lengths) / sum(lengths) / 128) * 128)
    batch = max(1, round(flops(lengths, causal, args) / flops([length], causal, args)))
    q, k, v = (torch.randn(batch, length, args.heads, args.head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    share = flops([length] * batch, causal, args) / flops(lengths, causal, args)
    return functools.partial(attnforge.attention, q, k, v, causal=causal), share, f"{batch} x {length}"


def point(name, lengths, causal, session, peers):
    import attnforge
    import peer_runs
    import torch

    args, tokens = session.args, sum(lengths)
    cu = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
    longest = max(lengths)
    q, k, v = (torch.randn(tokens, args.heads, args.head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    ours = functools.partial(attnforge.attention, q, k, v, causal=causal, cu_seqlens=cu, max_seqlen=longest)
    dense, share, shape = dense_run(lengths, causal, args, torch, attnforge)
    for run in (ours, dense):
        run()
        if args.tune != "none":
            problem = list(attnforge.plan_cache)[-1].problem
            attnforge.tune(str(problem), rigor=args.tune, family=args.family)
    attnforge.plan_cache.clear()
    runs, notes = {"attnforge": ours}, {"dense": shape}
    peer_runs.add_peers(runs, notes, peers, cu, longest, causal, q, k, v)
    beside = "fa3" if "fa3" in runs else "attnforge"
    reference = peer_kernels.output_of(runs[beside]()).float()
    errors = peer_kernels.drop_wrong(runs, notes, lambda _, run: peer_kernels.relative_error(peer_kernels.output_of(run()), reference), beside)
    times = session.time_ms({**runs, "dense": dense})
    times["dense"] = times["dense"]._replace(ms=times["dense"].ms / share)
    notes.setdefault("attnforge", list(attnforge.plan_cache)[0].config)
    named = {"distribution": name, "causal": int(causal), "sequences": len(lengths), "tokens": tokens, "longest": longest}
    named |= {"heads": args.heads, "head_dim": args.head_dim}
    work = rounds.tflops(flops(lengths, causal, args))
    return rounds.table(COLUMNS, named, ["attnforge", "dense", *(peer.name for peer in peers)], times, errors, notes, args.rounds, work)


def summary(rows):
    """Geometric means of the peers' times to attnforge's."""
    ratios = figures.grouped((row["impl"], float(row["ratio"])) for row in rows if row["impl"] != "attnforge" and row["ratio"])
    each = [f"{impl}: {statistics.geometric_mean(found):.3f}x over {len(found)}, least {min(found):.3f}x" for impl, found in ratios.items()]
    return "\n".join(each)


def main():
    parser = rounds.options(__doc__, "family")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--head-dim", type=int, default=128)
    args = parser.parse_args()
    session = rounds.Session(args, COLUMNS)
    peers, missing = peer_kernels.find(list(peer_kernels.PACKED), peer_kernels.PACKED)
    session.begin(peer_kernels.who(peers, missing, (), ()))
    for name, lengths in distributions(args.tokens, args.seed).items():
        for causal in (True, False):
            title = f"{name}{' causal' if causal else ''}, {len(lengths)} sequences"
            session.add(point(name, lengths, causal, session, peers), title)
    print(summary(session.rows), file=sys.stderr)


if __name__ == "__main__":
    main()
