"""Times attnforge beside its peers on problems drawn by a seed (drawn_problems.py), as a user gets it: after its first call, and untuned.

    python3 bench/drawn.py decode --seed 1 --count 60 --name drawn_decode
    python3 bench/drawn.py decode --seed 7 --count 20 --peers fa3,sdpa --out times.csv

"attnforge" is policy first_run: its first call tunes. "estimate" is what the model chooses on an empty database, which ATTNFORGE_CACHE must
name. Peers are those of serving.py:
in pages FlashAttention-3, FlashInfer and XQA, in one piece FlashAttention-3 and, of one new token and equal lengths, cuDNN and
FlashAttention-2 of PyTorch. bf16, cold L2, all in shuffled rounds on a heated card, medians; outputs are compared before anything is timed.
"""

import statistics

import choice
import drawn_problems
import peer_kernels
import rounds
import serving
import serving_peers

COLUMNS = (
    "point,model,num_heads_q,num_heads_kv,head_dim,batch,seqlen_q,keys,longest,page_size,impl,ms,tb_per_s,ratio,"
    "best_peer,ratio_to_best_peer,error,rounds,spread,late,note"
).split(",")
# ratio: the time over that of attnforge. ratio_to_best_peer: how much faster attnforge, or its estimate, is. keys: of all sequences.
OURS = ("attnforge", "estimate")


def case_of(point, torch):
    heads = point.num_heads_q, point.num_heads_kv
    words = drawn_problems.words_of(point)
    return serving.Case(words, heads, point.new_tokens, list(point.lengths), point.page_size or 16, torch, head_dim=point.head_dim)


def call_of(case, in_pages, attnforge):
    """A function that runs attnforge on a case, as a user of such caches calls it."""
    if in_pages:
        return lambda: attnforge.attention(case.q, *case.pools, causal=case.causal, used_kv=case.used, page_table=case.table)
    k, v = case.one_piece
    if len(set(case.lengths)) > 1:
        return lambda: attnforge.attention(case.q, k, v, causal=case.causal, used_kv=case.used)
    k, v = (x[:, : case.lengths[0]] for x in (k, v))
    return lambda: attnforge.attention(case.q, k, v, causal=case.causal)


def estimates(points, torch, attnforge):
    """The configs that policy estimate takes while nothing was measured, in the order of the points."""
    attnforge.configure(policy="estimate")
    found = []
    for point in points:
        attnforge.plan_cache.clear()
        call_of(case_of(point, torch), bool(point.page_size), attnforge)()
        plan = list(attnforge.plan_cache)[-1]
        if plan.provenance != "estimated":
            raise SystemExit(f"{plan.problem}: its config is {plan.provenance}; name an empty database by ATTNFORGE_CACHE")
        found.append(plan.config)
        torch.cuda.empty_cache()
    attnforge.configure(policy="first_run")
    return found


def settle(call, estimate, device, attnforge):
    """({name: function}, {name: config}, output) of OURS."""
    attnforge.plan_cache.clear()
    output = call()
    configs = {"attnforge": list(attnforge.plan_cache)[-1].config, "estimate": estimate}
    runs = choice.runs_with(call, dict.fromkeys(configs.values()), device, attnforge)
    return {name: runs[config] for name, config in configs.items() if config in runs}, configs, output


def measure(point, estimate, session, peers, attnforge):
    """The rows of a drawn point."""
    import peer_runs

    case = case_of(point, session.torch)
    named = {
        "point": case.name, "model": point.model, "num_heads_q": case.heads[0], "num_heads_kv": case.heads[1], "head_dim": point.head_dim,
        "batch": len(case.lengths), "seqlen_q": case.seqlen_q, "keys": sum(case.lengths), "longest": max(case.lengths),
        "page_size": point.page_size,
    }  # fmt: skip
    runs, notes, output = settle(call_of(case, bool(point.page_size), attnforge), estimate, case.q.device.index, attnforge)
    reference, errors = output.float(), {}

    def error_of(result):
        return peer_kernels.relative_error(peer_kernels.output_of(result), reference)

    if "estimate" in runs:
        errors["estimate"] = error_of(runs["estimate"]())
        if not errors["estimate"] < peer_kernels.WRONG:
            raise SystemExit(f"{case.name}: estimate differs from attnforge by {errors['estimate']:.1e}")
    serving_peers.add(peers, case, error_of, peer_runs.fastest, runs, notes, errors, in_pages=bool(point.page_size))
    times = session.time_ms(runs)
    more = {}
    for name in OURS:
        others = {other: time for other, time in times.items() if other not in OURS}
        if name in times:
            more[name] = rounds.beside_best({"attnforge": times[name], **others})
    work = lambda ms: {"tb_per_s": f"{case.bytes() / ms / 1e9:.2f}"}
    return rounds.table(COLUMNS, named, [*OURS, *times, *notes], times, errors, notes, session.args.rounds, work, more)


def said_of(rows):
    """A line for each of OURS: its speed beside the fastest peer at each point."""
    for name in OURS:
        found = {row["point"]: float(row["ratio_to_best_peer"]) for row in rows if row["impl"] == name and row["ratio_to_best_peer"]}
        if found:
            least = min(found, key=found.get)
            mean = statistics.geometric_mean(found.values())
            yield f"{name}: geometric mean {mean:.3f}x the fastest peer, least {found[least]:.3f}x ({least}), {len(found)} points"


def main():
    parser = rounds.options(__doc__, rounds=15, heat_ms=50, tune=None, seed_of="problems and tensors")
    parser.add_argument("kind", choices=("decode",), help="what is drawn")
    parser.add_argument("--count", type=int, default=60, help="problems (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="leave the first N of them out")
    parser.add_argument("--clean-l2", action="store_true", help="nothing in the L2 has to be written back while a run is timed")
    parser.add_argument("--peers", help=f"none, or these and no others, of {', '.join(serving_peers.LOADERS)}; default: those that can be imported")
    args = parser.parse_args()
    wanted = [name for name in (serving_peers.LOADERS if args.peers is None else args.peers.split(",")) if name not in ("", "none")]
    session = rounds.Session(args, COLUMNS)
    import attnforge
    import peer_runs

    peers, missing = peer_kernels.find(wanted, serving_peers.LOADERS, needed=args.peers is not None)
    copies = f"a copy of 1 GiB: {peer_runs.copy_tb_per_s():.2f} TB/s, read and written bytes together"
    session.begin([*peer_kernels.who(peers, missing, wanted, serving_peers.LOADERS), copies])
    points = list(drawn_problems.decode(args.seed, args.first + args.count))[args.first :]
    for point, estimate in zip(points, estimates(points, session.torch, attnforge)):
        session.add(measure(point, estimate, session, peers, attnforge), drawn_problems.words_of(point), "ms")
    for line in said_of(session.rows):
        session.say(line)


if __name__ == "__main__":
    main()
