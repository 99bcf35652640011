"""Times attnforge and every peer that can be imported in one process, on the same tensors, and prints the ratios.

    python3 bench/peers.py --list main --tune quick --out times.csv
    python3 bench/peers.py --peers torch-cudnn,fa3,flex@seqlen=4096 --configs bench/results/h200/hopper.csv --name hopper
    python3 bench/peers.py --list decode --only num_heads=16:1 --choose 40 --peers torch-cudnn,fa3 --out times.csv
    python3 bench/peers.py --summary bench/results/h200/hopper.csv      # only the means, of times taken earlier

Times are as rounds.py says. Outputs are compared before anything is timed; a peer whose output is another is not timed, and its row says
so. peer_kernels.py has the peers.
"""

import pathlib
import sys

import choice
import figures
import peer_kernels
import rounds

HERE = pathlib.Path(__file__).resolve().parent
LISTS = sorted(path.stem for path in (HERE / "problems").glob("*.txt"))


def read_list(name, dtype):
    """The texts of a list's problems, those of bf16 as `dtype`."""
    for line in (HERE / "problems" / f"{name}.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            yield line.replace("fwd bf16 ", f"fwd {dtype} ")


def point_of(problem):
    sizes = [problem.batch, problem.num_heads_q, problem.num_heads_kv, problem.seqlen_q, problem.seqlen_kv]
    return figures.Point(problem.dtype_q, *sizes, problem.head_dim, problem.head_dim_v, int(problem.causal))


def rows_of(problem, times, errors, notes, count, config=""):
    """The rows of a point, attnforge's first: of {name: (ms, spread, late)}, {name: relative error} and {name: note}."""
    return rounds.rows_of_point({}, point_of(problem), times, errors, notes, count, rounds.flops(problem), {"attnforge": config})


def choose(problem, args, stored, plan, fastest):
    """Decides which config runs; plan() makes a plan, as the first run of a problem does, and fastest(stored) is that of args.choose.
    Says how it came about."""
    import attnforge

    config = stored.get(point_of(problem))
    why = ""
    attnforge.configure(config="")  # that of the point before
    if args.choose:
        attnforge.configure(config=fastest(config))
        return f"the fastest of {args.choose} configs{' and that of --configs' if config else ''}"
    if config:
        attnforge.configure(config=config)
        try:
            plan()
            return "the config of --configs"
        except attnforge.AttnforgeError as error:
            why = f"; that of --configs is refused: {peer_kernels.first_line(error)}"
            attnforge.configure(config="")
    elif stored:
        why = "; --configs does not have the point"
    if args.tune == "none":
        return f"not tuned{why}"
    if args.tune == "first_run":
        attnforge.configure(policy="first_run")
        plan()
        return f"tuned by its first call{why}"
    attnforge.tune(str(problem), rigor=args.tune, family=args.family)
    return f"tuned ({args.tune}){why}"


def asked_peers(text):
    """{name: words that a line of a list must have} of "fa3,flex@seqlen=4096"; of None: the usual ones, everywhere."""
    names = peer_kernels.DEFAULT if text is None else text.split(",")
    return {name: words for name, _, words in (each.partition("@") for each in names)}


def measure(text, session, stored, peers):
    """The rows of a line of a list."""
    import attnforge
    import peer_runs

    args, problem = session.args, attnforge.Problem.parse(text)
    q, k, v = peer_runs.tensors(problem)
    ours = peer_runs.attnforge_run(problem, q, k, v)

    def fastest(config):
        found = choice.chosen({"attnforge": ours}, {"attnforge": config}, q.device.index, args.choose, session.flush, session.heat, attnforge)
        return found.get("attnforge", "")  # of a problem that nothing serves the run says so

    how = choose(problem, args, stored, ours, fastest)
    attnforge.plan_cache.clear()
    words = asked_peers(args.peers)
    here = [peer for peer in peers if words[peer.name] in text]
    ours()
    plan = next(iter(attnforge.plan_cache))
    if any(peer.name == "untuned" for peer in here):
        ours = choice.with_plan(ours, plan, q.device.index, attnforge)
    runs, notes = {"attnforge": ours}, {peer.name: f"only asked for at {words[peer.name]}" for peer in peers if peer not in here}
    try:
        peer_kernels.refuse_other_masks(problem)
        peer_runs.add_peers(runs, notes, here, problem, q, k, v)
    except ValueError as error:
        notes |= {peer.name: peer_kernels.first_line(error) for peer in here}
    reference, found = peer_kernels.judge(peer_runs.errors(runs))
    errors = peer_kernels.drop_wrong(runs, notes, lambda name, run: found[name], reference) if reference else {}
    times = session.time_ms(runs)
    notes.setdefault("attnforge", how)
    return rows_of(problem, times, errors, notes, args.rounds, plan.config)


def header(args, peers, missing):
    """What the first lines say of the peers and of attnforge's configs, after machine and command."""
    lines = peer_kernels.who(peers, missing, asked_peers(args.peers), peer_kernels.DEFAULT)
    return [*lines, figures.configs_line(args)]


def run(args):
    session = rounds.Session(args, figures.COLUMNS, "" if args.dtype == "bf16" else f"_{args.dtype}")
    import attnforge
    import peer_runs

    stored = figures.stored_configs(args.configs, figures.point_of)
    peers, missing = peer_kernels.find(list(asked_peers(args.peers)), needed=args.peers is not None)
    copies = f"a copy of 1 GiB: {peer_runs.copy_tb_per_s():.2f} TB/s, read and written bytes together"
    session.begin([*header(args, peers, missing), copies])
    for text in (text for name in args.list.split(",") for text in read_list(name, args.dtype)):
        if not all(word in text.split() for word in args.only.split()):
            continue
        try:
            of_point = measure(text, session, stored, peers)
        except attnforge.AttnforgeError as error:
            of_point = rows_of(attnforge.Problem.parse(text), {}, {}, {"attnforge": peer_kernels.first_line(error)}, args.rounds)
        session.add(of_point, text)
    return session.rows


def main():
    parser = rounds.options(__doc__, "configs", "choose", "family", "dtype", "summary", first_run=True)
    parser.add_argument("--list", default="main", help=f"lists of bench/problems, separated by commas: {', '.join(LISTS)}")
    parser.add_argument("--only", default="", metavar="WORDS", help='lines of the lists with all of these words, as "num_heads=16:1 batch=8"')
    parser.add_argument(
        "--peers",
        help=f"these and no others, of {', '.join(peer_kernels.LOADERS)}; NAME@WORDS: only at lines of the lists that have WORDS; "
        f"default: {', '.join(peer_kernels.DEFAULT)}, those that can be imported",
    )
    parser.add_argument("--clean-l2", action="store_true", help="nothing in the L2 has to be written back while a run is timed")
    args = parser.parse_args()
    rows = figures.read_csv(args.summary)[1] if args.summary else run(args)
    csv_on_stdout = not (args.summary or args.out or args.name)
    print(figures.summary(rows), file=sys.stderr if csv_on_stdout else sys.stdout)
    if any(row["impl"] == "attnforge" and not row["ms"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
