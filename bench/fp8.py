"""Times attention on q, k and v of e4m3, with scales of heads, beside FlashAttention-3's on the same numbers, which has sums of one level and
such scales alone.

    python3 bench/fp8.py --name fp8_peers
    python3 bench/fp8.py --sums --name fp8_sums      # errors of long sums in place of times

"attnforge" adds up in two levels, "fast_sums" as tensor cores do, "token_scales" as "attnforge" with scales of rows of q and k; each after
its first call, policy first_run. 16 heads, 16384 tokens in all, o in bf16. Errors are relative to fp32 attention on what the numbers
stand for, of the first sequence.

--sums: root mean squares of errors relative to the outputs', of 256 queries and 131072 keys in one head, beside fp64 attention on the same
numbers of 8 bits; v is normal or of one sign, from 0.5 to 1.5. "roundings" is what rounding probabilities to e4m3 and o to bf16 does to exact
sums, "inputs" what rounding q, k and v to e4m3 does; beside_roundings: the error over that of roundings; mean: of errors with their signs.
One head leaves SMs free, so attnforge splits its keys (the note has num_splits): fast_sums are of one split's keys each.
"""

import itertools
import math
import statistics

import peer_kernels
import rounds

COLUMNS = "head_dim,seqlen,causal,impl,ms,tflops,ratio,speed_beside_fa3,error,rounds,spread,late,note".split(",")
HEADS, TOKENS = 16, 16384
COLUMNS_OF_SUMS = "head_dim,v,impl,error,beside_roundings,mean,note".split(",")
QUERIES, KEYS = 256, 131072


def wanted_of(tensors, scales, causal, torch):
    """In fp32, of the first sequence."""
    of_rows = [scale[:1] if scale.dim() == 3 else scale[:1, None] for scale in scales]
    q, k, v = ((x[:1].float() * scale[..., None]).transpose(1, 2) for x, scale in zip(tensors, of_rows))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def measure(point, session, attnforge, peer):
    """The rows of a point."""
    torch, (head_dim, seqlen, causal) = session.torch, point
    made = [torch.randn(TOKENS // seqlen, seqlen, HEADS, head_dim, device="cuda") for _ in range(3)]
    *tensors, named, _ = attnforge.quantize_qkv(*made)
    *of_tokens, token_scales, _ = attnforge.quantize_qkv(*made, scale="token")
    runs = {
        name: lambda fast=fast: attnforge.attention(*tensors, causal=causal, fast_sums=fast, **named)
        for name, fast in (("attnforge", False), ("fast_sums", True))
    }
    runs["token_scales"] = lambda: attnforge.attention(*of_tokens, causal=causal, **token_scales)
    if peer:
        descales = {f"{name[0]}_descale": scale for name, scale in named.items()}
        runs["fa3"] = lambda: peer_kernels.output_of(peer.flash_attn_func(*tensors, causal=causal, **descales))
    wanted, notes = dict.fromkeys(runs, wanted_of(tensors, named.values(), causal, torch)), {}
    wanted["token_scales"] = wanted_of(of_tokens, token_scales.values(), causal, torch)
    errors = peer_kernels.drop_wrong(runs, notes, lambda name, run: peer_kernels.relative_error(run()[:1], wanted[name]), "fp32", 0.1)
    for name, run in runs.items():
        if name != "fa3":
            attnforge.plan_cache.clear()
            run()
            notes[name] = list(attnforge.plan_cache)[-1].config
    times = session.time_ms(runs)
    more = {name: {"speed_beside_fa3": f"{times['fa3'][0] / times[name][0]:.3f}"} for name in times if {name, "fa3"} <= set(times) and name != "fa3"}
    pairs = seqlen * (seqlen + 1) / 2 if causal else seqlen**2
    work = rounds.tflops(4.0 * head_dim * HEADS * TOKENS / seqlen * pairs)
    sizes = {"head_dim": head_dim, "seqlen": seqlen, "causal": int(causal)}
    return rounds.table(COLUMNS, sizes, [*runs, *notes], times, errors, notes, session.args.rounds, work, more)


def errors_of_sums(head_dim, kind, session, attnforge, peer):
    """The rows of a head dim and a kind of v."""
    torch = session.torch
    made = [torch.randn(1, rows, 1, head_dim, device="cuda") for rows in (QUERIES, KEYS, KEYS)]
    if kind == "one sign":
        made[2] = torch.rand_like(made[2]) + 0.5
    given = [x.to(torch.float8_e4m3fn) for x in made]

    def probabilities(q, k):
        """Of which the largest of a row is 1, in fp64."""
        s = q[0, :, 0].double() @ k[0, :, 0].double().T / math.sqrt(head_dim)
        return torch.exp(s - s.amax(-1, keepdim=True))

    p, v = probabilities(*(x.float() for x in given[:2])), given[2].float()[0, :, 0].double()
    total, all_p = p.sum(-1, keepdim=True), probabilities(*made[:2])
    exact, largest = p @ v / total, 256.0  # a power of 2 changes no rounding
    found = {
        "inputs": all_p / all_p.sum(-1, keepdim=True) @ made[2][0, :, 0].double(),
        "roundings": ((p * largest).float().to(torch.float8_e4m3fn).double() @ v / (largest * total)).bfloat16().double(),
    }
    notes = {}
    for name, fast in (("attnforge", False), ("fast_sums", True)):
        attnforge.plan_cache.clear()
        found[name] = attnforge.attention(*given, fast_sums=fast)[0, :, 0].double()
        notes[name] = list(attnforge.plan_cache)[-1].config
    if peer:
        found["fa3"] = peer_kernels.output_of(peer.flash_attn_func(*given))[0, :, 0].double()
    unit = exact.square().mean().sqrt()
    errors = {name: ((o - exact).square().mean().sqrt() / unit).item() for name, o in found.items()}
    return [
        {"head_dim": head_dim, "v": kind, "impl": name, "error": f"{error:.2e}", "beside_roundings": f"{error / errors['roundings']:.2f}"}
        | {"mean": f"{((found[name] - exact).mean() / unit).item():.1e}", "note": notes.get(name, "")}
        for name, error in errors.items()
    ]


def main():
    parser = rounds.options(__doc__, "shard", rounds=11, tune=None)
    parser.add_argument("--sums", action="store_true", help="errors of long sums in place of times")
    args = parser.parse_args()
    session = rounds.Session(args, COLUMNS_OF_SUMS if args.sums else COLUMNS)
    import attnforge

    attnforge.configure(policy="first_run")
    try:
        peer, version = peer_kernels.fa3_package()
    except ImportError as error:
        peer, version = None, f"not in the run: {error}"
    session.begin([f"peer fa3: {version}"])
    if args.sums:
        for head_dim, kind in itertools.islice(itertools.product((64, 128, 256), ("normal", "one sign")), args.shard[0], None, args.shard[1]):
            session.add(errors_of_sums(head_dim, kind, session, attnforge, peer), f"head_dim {head_dim}, v {kind}", value="error")
        return
    points = itertools.product((128, 256), (2048, 8192, 16384), (False, True))
    for point in itertools.islice(points, args.shard[0], None, args.shard[1]):
        session.add(measure(point, session, attnforge, peer), f"head_dim {point[0]}, {point[1]}, {'causal' if point[2] else 'full'}")
    for name in ("attnforge", "fast_sums", "token_scales"):
        found = [float(row["speed_beside_fa3"]) for row in session.rows if row["impl"] == name and row["speed_beside_fa3"]]
        if found:
            session.say(f"{name}: geometric mean {statistics.geometric_mean(found):.3f}x fa3, least {min(found):.3f}x, {len(found)} points")


if __name__ == "__main__":
    main()
