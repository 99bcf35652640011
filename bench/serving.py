"""Times caches in pages beside caches in one piece and the kernels of others: decode, sequences of unequal lengths, a chunk of a prompt.

    python3 bench/serving.py --tune full --name serving
    python3 bench/serving.py --only decode --choose 32 --out times.csv
    python3 bench/serving.py --only decode,prefill --configs bench/results/h200/serving.csv --out times.csv
    python3 bench/serving.py --only ragged --seeds 1,2,3,4,5 --rounds 21 --peers none --out times.csv

"attnforge" is pages, "one piece" a padded cache with lengths on the GPU, "dense" one whose lengths the host knows; "fa3" and "flashinfer"
are pages, "fa3, one piece" the faster of the other two (serving_peers.py says how they are called). bf16, head_dim 128, pages in random
order of a pool a quarter larger. Times are as rounds.py says. Outputs are compared with attnforge's before anything is timed.
"ragged" has 64 sequences whose lengths are log-normal, in caches for the longest that there may be, for each of --seeds; beside it stand
64 equal ones of as many bytes, and at the end it says how much faster these are. TB/s are of K and V read once.
"""

import functools
import random
import re
import statistics
import sys

import choice
import drawn_problems
import figures
import peer_kernels
import rounds
import serving_peers

HEAD_DIM = 128
NAMED_BY = ["case", "batch", "num_heads_q", "num_heads_kv", "seqlen_q", "keys", "longest", "page_size", "impl"]  # a row, in any run
COLUMNS = [*NAMED_BY, "ms", "tb_per_s", "ratio", "error", "rounds", "spread", "late", "note"]
# ratio: the time over that of attnforge. note: attnforge's config, the option of a peer that was fastest, or why there is no time.
OURS = ("attnforge", "one piece", "dense")
LONGEST = 32768  # of ragged sequences
GROUPS = ("decode", "ragged", "prefill")  # of cases
RAGGED, EQUAL = "ragged, seed ", ", equal lengths of as many bytes"  # names of cases
DECODE = [(1, 2048), (1, 8192), (1, 65536), (8, 8192), (64, 8192), (128, 4096)]


class Case:
    """Sequences of `lengths` keys, in pages and in one piece; room for `bound` each."""

    scales = None  # of K and V as numbers, where these are of e4m3

    def __init__(self, name, heads, seqlen_q, lengths, page_size, torch, bound=0, head_dim=HEAD_DIM):
        self.name, self.heads, self.seqlen_q, self.lengths, self.page_size = name, heads, seqlen_q, lengths, page_size
        batch, longest = len(lengths), -(-max(bound, *lengths) // page_size) * page_size
        shape = {"device": "cuda", "dtype": torch.bfloat16}
        self.q = torch.randn(batch, seqlen_q, heads[0], head_dim, **shape)
        columns = longest // page_size
        taken = [-(-length // page_size) for length in lengths]
        pages = sum(taken) * 5 // 4
        self.pools = [torch.randn(pages, page_size, heads[1], head_dim, **shape) for _ in range(2)]
        self.table = torch.full((batch, columns), -1, dtype=torch.int32)
        order = torch.randperm(pages).int()
        for row, count in enumerate(taken):
            self.table[row, :count] = order[sum(taken[:row]) : sum(taken[: row + 1])]
        self.table = self.table.cuda()
        self.used = torch.tensor(lengths, dtype=torch.int32, device="cuda")
        self.longest = longest
        self.causal = seqlen_q > 1

    @functools.cached_property
    def one_piece(self):
        """K and V as [batch, longest, heads, head_dim]."""
        rows = self.table.clamp(min=0).long()
        return [pool[rows].flatten(1, 2) for pool in self.pools]

    def bytes(self):
        return 2 * 2 * self.q.shape[-1] * self.heads[1] * sum(self.lengths)


def cases(torch, seeds):
    """(name that --only has, title, function that makes it) of each."""

    def case(group, name, heads, seqlen_q, lengths, page_size, bound=0):
        title = f"{name} {len(lengths)} x {max(bound, *lengths)}, {heads[0]}:{heads[1]}"
        return group, title, functools.partial(Case, name, heads, seqlen_q, lengths, page_size, torch, bound)

    for heads in ((32, 8), (16, 1)):
        for batch, keys in DECODE:
            yield case("decode", "decode", heads, 1, [keys] * batch, 16)
    for seed in seeds:
        lengths = drawn_problems.log_normal(random.Random(seed), 64, 256, LONGEST)
        mean = round(statistics.mean(lengths))
        yield case("ragged", f"{RAGGED}{seed}", (32, 8), 1, lengths, 64, LONGEST)
        yield case("ragged", f"{RAGGED}{seed}{EQUAL}", (32, 8), 1, [mean] * 64, 64)
    yield case("prefill", "prefill", (32, 8), 512, [32768], 64)


def words_of(only):
    """(group, part of titles) of each word of --only. Titles have commas: those before no group are theirs."""
    for word in re.split(rf",(?=\s*(?:{'|'.join(GROUPS)})\b)", only) if only else []:
        group, _, part = word.strip().partition("@")
        yield group, part


def asked(only, group, title):
    """Whether --only has a case: "decode@64 x 8192, 32:8,prefill" is the prefill and the decodes with that in their titles."""
    words = list(words_of(only))
    return not words or any(group == name and part in title for name, part in words)


def said_of_ragged(times):
    """Of {(case, implementation): ms}: a line for each implementation, times of equal lengths over those of ragged ones."""
    ratios = [(impl, times[case + EQUAL, impl] / ms) for (case, impl), ms in times.items() if case.startswith(RAGGED) and (case + EQUAL, impl) in times]
    for impl, found in figures.grouped(ratios).items():
        each = ", ".join(f"{ratio:.3f}" for ratio in found)
        yield f"{impl}: ragged lengths run at {statistics.geometric_mean(found):.3f}x the speed of equal ones ({each})"


def said_of_peers(rows):
    """Lines: how fast attnforge's pages are beside peers in pages, and beside each way of one piece."""
    points, in_pages = figures.all_ratios(rows, serving_peers.point_of), serving_peers.ratios_in_pages(rows)
    ratios = []
    for point, found in points.items():
        case, heads, heads_kv, *_ = point
        group = f"{'equal lengths' if case.endswith(EQUAL) else case.partition(',')[0]} {heads}:{heads_kv}"
        best, ratio = figures.best_peer(in_pages[point])
        of_point = {"the fastest peer in pages": ratio} if best else {}
        of_point |= {name: found[name] for name in ("fa3, one piece", "one piece", "dense") if name in found}
        ratios += [((group, other), each) for other, each in of_point.items()]
    for (group, other), each in figures.grouped(ratios).items():
        mean, least = statistics.geometric_mean(each), min(each)
        yield f"{group}: attnforge in pages at {mean:.3f}x the speed of {other}, least {least:.3f}x, {len(each)} points"


def names_of(case):
    """{column: value} of NAMED_BY but for the implementation."""
    return {
        "case": case.name, "batch": len(case.lengths), "num_heads_q": case.heads[0], "num_heads_kv": case.heads[1],
        "seqlen_q": case.seqlen_q, "keys": sum(case.lengths), "longest": case.longest, "page_size": case.page_size,
    }


def key_of(row):
    return tuple(str(row[column]) for column in NAMED_BY)


def stored_configs(path):
    """{key_of(row): config} of attnforge's rows in a file that this program wrote."""
    rows = figures.read_csv(path)[1] if path else []
    return {key_of(row): row["note"] for row in rows if row["impl"] in OURS and row["note"].startswith("fwd_")}


def runs_of(case, dense, attnforge):
    """{name: function} of OURS, each with the same result."""
    ours = functools.partial(attnforge.attention, case.q, causal=case.causal, used_kv=case.used)
    k, v = case.one_piece
    runs = {"attnforge": functools.partial(ours, *case.pools, page_table=case.table), "one piece": functools.partial(ours, k, v)}
    if dense and len(set(case.lengths)) == 1:
        keys = case.lengths[0]
        runs["dense"] = functools.partial(attnforge.attention, case.q, k[:, :keys], v[:, :keys], causal=case.causal)
    return runs


def settle(run, config, tune, attnforge):
    """(plan, output) of a run with this config, or where there is none or it is refused, with a tuned one."""
    if config:
        try:
            return choice.with_config(run, config, attnforge)
        except attnforge.AttnforgeError as error:
            print(f"tunes, for the config of --configs is refused: {peer_kernels.first_line(error)}", file=sys.stderr)
    output = run()
    if tune not in ("none", "first_run"):
        attnforge.tune(str(list(attnforge.plan_cache)[-1].problem), rigor=tune)
        output = run()
    return list(attnforge.plan_cache)[-1], output


def rows_of(case, session, stored, peers, attnforge):
    import peer_runs

    args = session.args
    runs, notes, errors, plans = {}, {}, {}, []
    reference = None

    def error_of(output):
        return peer_kernels.relative_error(peer_kernels.output_of(output), reference)

    named = names_of(case)
    ours = runs_of(case, not args.no_dense, attnforge)
    configs = {name: config for name in ours if (config := stored.get(key_of(named | {"impl": name})))}
    if args.choose:
        configs |= choice.chosen(ours, configs, case.q.device.index, args.choose, session.flush, session.heat, attnforge)
    for name, run in ours.items():
        try:
            plan, output = settle(run, configs.get(name), args.tune, attnforge)
        except attnforge.AttnforgeError as error:
            notes[name] = peer_kernels.first_line(error)
            continue
        reference = output.float() if reference is None else reference
        errors[name] = error_of(output)
        if errors[name] < peer_kernels.WRONG:
            runs[name], notes[name] = run, plan.config
            plans.append(plan)
        else:
            notes[name] = "differs"
    if reference is not None:
        serving_peers.add(peers, case, error_of, peer_runs.fastest, runs, notes, errors)
    attnforge.plan_cache.clear()
    for plan in plans:  # what was configured and tuned for one made the others' be forgotten
        attnforge.plan_cache.put((case.q.device.index, plan.problem), plan)
    times = session.time_ms(runs)
    if len(attnforge.plan_cache) != len(plans):
        raise SystemExit("a run made a plan of its own while it was timed: its row's config is not its")
    return table_of(case, named, times, notes, errors, args.rounds)


def table_of(case, named, times, notes, errors, count):
    """Rows of COLUMNS, those with a time first: of {name: Time}, {name: note} and {name: relative error}."""
    return rounds.table(COLUMNS, named, [*times, *notes], times, errors, notes, count, lambda ms: {"tb_per_s": f"{case.bytes() / ms / 1e9:.2f}"})


def main():
    parser = rounds.options(__doc__, "configs", "choose", rounds=11, heat_ms=50, tune="full", first_run=True)
    parser.add_argument("--only", default="", help="of decode, ragged, prefill; NAME@WORDS: those with WORDS in their titles, as 64 x 8192, 32:8")
    parser.add_argument(
        "--peers", help=f"none, or these and no others, of {', '.join(serving_peers.LOADERS)}; default: those that can be imported"
    )
    parser.add_argument("--no-dense", action="store_true", help="a shorter run: without attnforge on lengths that the host knows")
    parser.add_argument("--seeds", default="1,2,3", help="of ragged lengths (default: %(default)s)")
    args = parser.parse_args()
    named = list(serving_peers.LOADERS) if args.peers is None else args.peers.split(",")
    wanted = [name for name in named if name not in ("", "none")]
    unknown = {group for group, _ in words_of(args.only)} - set(GROUPS)
    if unknown:
        parser.error(f"--only {', '.join(sorted(unknown))}: there are {', '.join(GROUPS)}")
    session = rounds.Session(args, COLUMNS)
    import attnforge
    import peer_runs

    if args.tune == "first_run":
        attnforge.configure(policy="first_run")
    stored = stored_configs(args.configs)
    peers, missing = peer_kernels.find(wanted, serving_peers.LOADERS, needed=args.peers is not None)
    copies = f"a copy of 1 GiB: {peer_runs.copy_tb_per_s():.2f} TB/s, read and written bytes together"
    session.begin([*peer_kernels.who(peers, missing, wanted, serving_peers.LOADERS), copies])
    for group, title, make in cases(session.torch, [int(seed) for seed in args.seeds.split(",")]):
        if asked(args.only, group, title):
            attnforge.plan_cache.clear()
            session.add(rows_of(make(), session, stored, peers, attnforge), title, "ms")
    rows = session.rows
    for line in said_of_peers(rows):
        session.say(line)
    for line in said_of_ragged({(row["case"], row["impl"]): float(row["ms"]) for row in rows if row["ms"]}):
        session.say(line)


if __name__ == "__main__":
    main()
