"""Times attnforge beside its peers on problems drawn by a seed (drawn_problems.py), as a user gets it: after its first call, and untuned.

    python3 bench/drawn.py decode --seed 1 --count 60 --name drawn_decode
    python3 bench/drawn.py forward --count 40 --limit-s 500 --go-on --name drawn_forward     # again until it has all
    python3 bench/drawn.py backward --count 30 --peers fa4,torch-cudnn --out times.csv
    python3 bench/drawn.py decode --any-heads --count 30 --out times.csv                 # heads and head dims that no model has

"attnforge" is policy first_run: its first call tunes. "estimate" is policy estimate with an empty database, so the winner that ships for
the nearest problem, where one does. "model" is the model's first config of the first family. Problems are drawn one by one, so that the first ones, which
--limit-s leaves, are a sample too. ATTNFORGE_CACHE should name an empty database: first_run tunes nothing twice.
Peers of decode are those of serving.py: in pages FlashAttention-3, FlashInfer and XQA, in one piece FlashAttention-3 and, of one new token
and equal lengths, cuDNN and FlashAttention-2 of PyTorch. Peers of forward and backward are in drawn_dense.py. bf16, cold L2, all in shuffled
rounds on a heated card, medians. Outputs are compared before anything is timed: of decode with attnforge's, else with fp32.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

import choice
import drawn_dense
import drawn_problems
import figures
import machine
import peer_kernels
import rounds
import serving
import serving_peers

RESULT = "impl,ms,{},ratio,best_peer,ratio_to_best_peer,error,rounds,spread,late,note".format
# ratio: the time over that of attnforge. ratio_to_best_peer: how much faster each of OURS is. keys: of all sequences.
DENSE = "point,model,num_heads_q,num_heads_kv,head_dim,head_dim_v,sequences,queries,keys,longest_q,longest_kv,"
COLUMNS = {
    "decode": f"point,model,num_heads_q,num_heads_kv,head_dim,batch,seqlen_q,keys,longest,page_size,{RESULT('tb_per_s')}".split(","),
    "forward": f"{DENSE}causal,window_left,window_right,softcap,packed,{RESULT('tflops')}".split(","),
}
COLUMNS["backward"] = COLUMNS["forward"]
LOADERS = {"decode": serving_peers.LOADERS, "forward": drawn_dense.LOADERS, "backward": drawn_dense.LOADERS}
OURS = ("attnforge", "estimate", "model")
ESTIMATES = """import sys, attnforge
for problem in sys.stdin:
    print(attnforge.inspect(problem.strip(), compile=False, max_candidates=1)["config"], flush=True)"""


class Decode(serving.Case):
    """A drawn decode step; drawn_dense.Case has the same functions."""

    def __init__(self, point, torch):
        heads = point.num_heads_q, point.num_heads_kv
        words = drawn_problems.words_of(point)
        super().__init__(words, heads, point.new_tokens, list(point.lengths), point.page_size or 16, torch, head_dim=point.head_dim)
        self.point = point

    @property
    def cache(self):
        """K and V as the point has them."""
        return self.pools if self.point.page_size else self.one_piece

    def call(self, attnforge, cache=None, **scales):
        """A function that runs attnforge as a user of such caches calls it. cache: K and V in place of those of bf16."""
        k, v = cache or self.cache
        if self.point.page_size:
            return lambda: attnforge.attention(self.q, k, v, causal=self.causal, used_kv=self.used, page_table=self.table, **scales)
        if len(set(self.lengths)) > 1:
            return lambda: attnforge.attention(self.q, k, v, causal=self.causal, used_kv=self.used, **scales)
        k, v, *rest = (x[:, : self.lengths[0]] if x.dim() > 1 else x for x in (k, v, *scales.values()))
        return lambda: attnforge.attention(self.q, k, v, causal=self.causal, **dict(zip(scales, rest)))

    def named(self):
        return {
            "num_heads_q": self.heads[0], "num_heads_kv": self.heads[1], "head_dim": self.point.head_dim, "batch": len(self.lengths),
            "seqlen_q": self.seqlen_q, "keys": sum(self.lengths), "longest": max(self.lengths), "page_size": self.point.page_size,
        }  # fmt: skip

    def add_peers(self, peers, runs, notes):
        """Judges and adds: {name: relative error}."""
        import peer_runs

        reference = runs["attnforge"]().float()
        error_of = lambda result: peer_kernels.relative_error(peer_kernels.output_of(result), reference)
        errors = peer_kernels.drop_wrong(runs, notes, lambda _, run: error_of(run()), "attnforge")
        del errors["attnforge"]  # from itself
        serving_peers.add(peers, self, error_of, peer_runs.fastest, runs, notes, errors, in_pages=bool(self.point.page_size))
        return errors

    def work(self):
        return lambda ms: {"tb_per_s": f"{self.bytes() / ms / 1e9:.2f}"}


class Dense(drawn_dense.Case):
    def add_peers(self, peers, runs, notes):
        """Judges and adds: {name: relative error}."""
        import peer_runs

        wrong = drawn_dense.WRONG[self.dout is not None]
        judge = lambda some: peer_kernels.drop_wrong(some, notes, lambda _, run: self.error_of(run()), "fp32", wrong)
        errors = judge(runs)
        for last in (False, True):
            if set(runs) <= set(OURS):
                added = {}
                peer_runs.add_peers(added, notes, [peer for peer in peers if (peer.name in drawn_dense.LAST) == last], self)
                errors |= judge(added)
                runs |= added
        return errors


def case_of(kind, point, torch):
    return Decode(point, torch) if kind == "decode" else Dense(point, torch, kind == "backward")


def estimator():
    """A function: the config that policy estimate takes for a problem's text where nothing was tuned. Another process answers, whose
    database is empty."""
    environment = {**os.environ, "ATTNFORGE_CACHE": ":memory:", "ATTNFORGE_SITE_CACHE": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen([sys.executable, "-c", ESTIMATES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def estimate(problem):
        print(problem, file=child.stdin, flush=True)
        return child.stdout.readline().strip() or sys.exit(f"the process that asks for estimates ended at {problem}")

    return estimate


def settle(call, device, estimate, attnforge, ours=OURS):
    """({name: function}, {name: note}) of `ours`, the first of OURS."""
    attnforge.plan_cache.clear()
    call()
    plan = list(attnforge.plan_cache)[-1]
    problem = str(plan.problem)
    model = attnforge.inspect(problem, compile=False, max_candidates=1)["candidates"][0]["config"]
    configs = dict(zip(ours, (plan.config, estimate(problem), model)))
    runs = choice.runs_with(call, dict.fromkeys(configs.values()), device, attnforge)
    notes = configs if plan.provenance == "measured" else configs | {"attnforge": f"{figures.NO_WINNER}: {plan.provenance}, {plan.config}"}
    return {name: runs[config] for name, config in configs.items() if config in runs}, notes


def measure(kind, point, session, peers, estimate, attnforge):
    """The rows of a drawn point."""
    case = case_of(kind, point, session.torch)
    runs, notes = settle(case.call(attnforge), case.q.device.index, estimate, attnforge)
    errors = case.add_peers(peers, runs, notes)
    times = session.time_ms(runs)
    more = {}
    for name in OURS:
        others = {other: time for other, time in times.items() if other not in OURS}
        if name in times:
            more[name] = rounds.beside_best({"attnforge": times[name], **others})
    named = {"point": case.name, "model": point.model, **case.named()}
    return rounds.table(session.columns, named, [*OURS, *times, *notes], times, errors, notes, session.args.rounds, case.work(), more)


def said_of(rows):
    """A line for each of OURS: its speed beside the fastest peer at each point."""
    for name in OURS:
        found = {row["point"]: float(row["ratio_to_best_peer"]) for row in rows if row["impl"] == name and row["ratio_to_best_peer"]}
        if found:
            least = min(found, key=found.get)
            mean = statistics.geometric_mean(found.values())
            yield f"{name}: geometric mean {mean:.3f}x the fastest peer, least {found[least]:.3f}x ({least}), {len(found)} points"
    yield from figures.without_winner(rows)


def rows_of(kind, point, session, *more):
    """Of measure(), or one that says why there is no time."""
    try:
        return measure(kind, point, session, *more)
    except RuntimeError as error:  # of attnforge, or memory ran out
        session.torch.cuda.synchronize()  # ends this where the GPU's context is broken: nothing after it would be true
        named = {"point": drawn_problems.words_of(point), "model": point.model}
        return rounds.table(session.columns, named, ["attnforge"], {}, {}, {"attnforge": peer_kernels.first_line(error)}, 0, None)


def drawn(args):
    """The points that --count, --first, --only and --shard leave."""
    which = args.seed, args.first + args.count, not args.any_heads
    return left(drawn_problems.decode(*which) if args.kind == "decode" else drawn_problems.dense(args.kind, *which), args)


def left(points, args):
    """Those of points that --first, --only and --shard leave."""
    index, of = args.shard
    return [point for point in list(points)[args.first :] if args.only.search(drawn_problems.words_of(point))][index::of]


def options(doc, count):
    """A parser of the options of a run that goes through points. count: the default of --count."""
    parser = rounds.options(doc, "shard", rounds=15, heat_ms=50, tune=None, seed_of="problems and tensors")
    parser.add_argument("--count", type=machine.positive, default=count, help="problems that are drawn (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="leave the first N of the problems out")
    parser.add_argument("--only", type=machine.regex, default="", metavar="REGEX", help='only problems whose name has it, as "71:1|pages of 16"')
    parser.add_argument("--limit-s", type=float, default=float("inf"), metavar="S", help="begin no point after so many seconds")
    parser.add_argument("--go-on", action="store_true", help="add to a file the points that it does not have")
    parser.add_argument("--clean-l2", action="store_true", help="nothing in the L2 has to be written back while a run is timed")
    parser.add_argument("--peers", help="none, or these and no others; a wrong name prints those that there are; default: those that can be imported")
    return parser


def begin(session, usual):
    """(peers, the points that a run which goes on has) of a session, whose file begins."""
    args = session.args
    wanted = [name for name in (usual if args.peers is None else args.peers.split(",")) if name not in ("", "none")]
    import attnforge
    import peer_runs

    attnforge.configure(policy="first_run")
    session.torch.backends.cuda.matmul.allow_tf32 = False
    peers, missing = peer_kernels.find(wanted, usual, needed=args.peers is not None)
    copies = f"a copy of 1 GiB: {peer_runs.copy_tb_per_s():.2f} TB/s, read and written bytes together"
    known = figures.read_csv(session.path)[1] if args.go_on and session.path and pathlib.Path(session.path).exists() else []
    session.rows += known
    session.begin([*peer_kernels.who(peers, missing, wanted, usual), copies], goes_on=bool(known))
    return peers, {row["point"] for row in known}


def go_through(points, known, session):
    """Those of points that are not known, as long as --limit-s allows."""
    points = [point for point in points if drawn_problems.words_of(point) not in known]
    for done, point in enumerate(points):
        if time.monotonic() - session.start > session.args.limit_s:
            session.say(f"--limit-s {session.args.limit_s:g} left {len(points) - done} of {len(points)} points out")
            break
        yield point


def main():
    parser = options(__doc__, count=60)
    parser.add_argument("kind", choices=tuple(COLUMNS), help="what is drawn")
    parser.add_argument("--any-heads", action="store_true", help="1 to 16 K/V heads, of 1 to 16 query heads each, head_dim 32 to 256: of no model")
    args = parser.parse_args()
    session = rounds.Session(args, COLUMNS[args.kind])
    import attnforge

    peers, known = begin(session, LOADERS[args.kind])
    estimate = estimator()
    for point in go_through(drawn(args), known, session):
        session.add(rows_of(args.kind, point, session, peers, estimate, attnforge), drawn_problems.words_of(point), "ms")
    for line in said_of(session.rows):
        session.say(line)
    failed = {row["point"] for row in session.rows if row["impl"] in OURS and not row["ms"]}
    if failed:
        raise SystemExit(f"without a time of attnforge: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
