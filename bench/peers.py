"""Times attnforge and every peer that can be imported in one process, on the same tensors, and prints the ratios.

    python3 bench/peers.py --list main --tune quick --out times.csv
    python3 bench/peers.py --peers torch-cudnn,fa3,flex@seqlen=4096 --configs bench/results/h200/hopper.csv --name hopper
    python3 bench/peers.py --list decode --only num_heads=16:1 --choose 40 --peers torch-cudnn,fa3 --out times.csv
    python3 bench/peers.py --summary bench/results/h200/hopper.csv      # only the means, of times taken earlier

Cold L2 (a buffer larger than it is cleared between samples), random normal inputs, all implementations in shuffled rounds on a
heated card, medians over the rounds, on the GPU's own clock. Outputs are compared before anything is timed; a peer whose output
is another is not timed, and its row says so. peer_kernels.py has the peers.
"""

import argparse
import csv
import pathlib
import sys
import time
import warnings

import choice
import figures
import machine
import peer_kernels

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = (
    "impl,dtype,batch,num_heads_q,num_heads_kv,seqlen_q,seqlen_kv,head_dim,head_dim_v,causal,ms,tflops,"
    "ratio_to_best_peer,best_peer,error,rounds,spread,late,note,config"
).split(",")
# error: relative, to the output of one peer. late: samples that may hold time of the host. note: why there is no time, or of
# attnforge how its config came about.
LISTS = sorted(path.stem for path in (HERE / "problems").glob("*.txt"))


def read_list(name, dtype):
    """The texts of a list's problems, those of bf16 as `dtype`."""
    for line in (HERE / "problems" / f"{name}.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            yield line.replace("fwd bf16 ", f"fwd {dtype} ")


def flops(problem):
    """Of the visible pairs, as attnforge counts: causal is a little more than half."""
    rows, keys = problem.seqlen_q, problem.seqlen_kv
    pairs = sum(min(keys, max(0, i + keys - rows + 1)) for i in range(rows)) if problem.causal else rows * keys
    return 2.0 * problem.batch * problem.num_heads_q * pairs * (problem.head_dim + problem.head_dim_v)


def point_of(problem):
    sizes = [problem.batch, problem.num_heads_q, problem.num_heads_kv, problem.seqlen_q, problem.seqlen_kv]
    return figures.Point(problem.dtype_q, *sizes, problem.head_dim, problem.head_dim_v, int(problem.causal))


def rows_of(problem, times, errors, notes, rounds, config=""):
    """The rows of a point, attnforge's first: of {name: (ms, spread, late)}, {name: relative error} and {name: note}.

    Ratios are of the times as they are written, so that whoever reads the file finds the same.
    """
    best, ratio = None, None
    if "attnforge" in times:
        best, ratio = figures.best_peer(figures.ratios({name: float(f"{time[0]:.4f}") for name, time in times.items()}))
    rows = []
    for name in dict.fromkeys(["attnforge", *times, *notes]):
        row = {"impl": name, **point_of(problem)._asdict(), "note": notes.get(name, "")}
        if name in times:
            ms, spread, late = times[name]
            row |= {"ms": f"{ms:.4f}", "tflops": f"{flops(problem) / ms / 1e9:.1f}", "rounds": rounds, "spread": f"{spread:.3f}"}
            row["late"] = late
        if name in errors:
            row["error"] = f"{errors[name]:.1e}"
        if name == "attnforge":
            row |= {"config": config, "best_peer": best or "", "ratio_to_best_peer": f"{ratio:.3f}" if ratio else ""}
        rows.append({column: row.get(column, "") for column in COLUMNS})
    return rows


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


def measure(text, args, stored, peers, flush, heat):
    """The rows of a line of a list."""
    import attnforge
    import peer_runs

    problem = attnforge.Problem.parse(text)
    q, k, v = peer_runs.tensors(problem)
    ours = peer_runs.attnforge_run(problem, q, k, v)

    def fastest(config):
        found = choice.chosen({"attnforge": ours}, {"attnforge": config}, q.device.index, args.choose, flush, heat, attnforge)
        return found.get("attnforge", "")  # of a problem that nothing serves the run says so

    how = choose(problem, args, stored, ours, fastest)
    attnforge.plan_cache.clear()
    words = asked_peers(args.peers)
    here = [peer for peer in peers if words[peer.name] in text]
    runs, notes = peer_runs.implementations(problem, q, k, v, here)
    notes |= {peer.name: f"only asked for at {words[peer.name]}" for peer in peers if peer not in here}
    errors = peer_runs.drop_wrong(runs, notes)
    times = peer_runs.time_ms(runs, args.rounds, heat, flush)
    notes.setdefault("attnforge", how)
    config = next(plan.config for plan in attnforge.plan_cache)
    return rows_of(problem, times, errors, notes, args.rounds, config)


def line_of(rows):
    """What is printed of a point: TFLOP/s of all, and attnforge's ratio."""
    text = ", ".join(f"{row['impl']} {row['tflops'] or '-'}" for row in rows)
    ours = rows[0]
    return f"{text}; {ours['ratio_to_best_peer']}x {ours['best_peer']}" if ours["best_peer"] else text


def output_path(args, gpu):
    return figures.result_path(gpu, f"{args.name}{'' if args.dtype == 'bf16' else '_' + args.dtype}") if args.name else args.out


def header(args, peers, missing):
    """What the first lines say of the peers and of attnforge's configs, after machine and command."""
    lines = peer_kernels.who(peers, missing, asked_peers(args.peers), peer_kernels.DEFAULT)
    return [*lines, figures.configs_line(args)]


def run(args):
    sys.path.insert(0, str(HERE.parent / "python"))
    torch = machine.torch()
    import attnforge
    import peer_runs

    warnings.filterwarnings("ignore")
    peer_runs.seed(args.seed)
    stored = figures.stored_configs(args.configs, figures.point_of)  # before --out opens what may be the same file
    peers, missing = peer_kernels.find(list(asked_peers(args.peers)), needed=args.peers is not None)
    flush = peer_runs.ColdL2(args.clean_l2)
    heat = peer_runs.Heat(args.heat_ms)
    gpu, driver = peer_runs.machine()
    path = output_path(args, gpu)
    file = open(path, "w", newline="") if path else sys.stdout
    about = f"{gpu}, driver {driver}, torch {torch.__version__}, attnforge {attnforge.version()}"
    copies = f"a copy of 1 GiB: {peer_runs.copy_tb_per_s():.2f} TB/s, read and written bytes together"
    for line in [about, machine.command(), *header(args, peers, missing), copies]:
        file.write(f"# {line}\n")
        print(line, file=sys.stderr)
    out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    out.writeheader()
    rows = []
    start = time.monotonic()
    for name in args.list.split(","):
        for text in read_list(name, args.dtype):
            if not all(word in text.split() for word in args.only.split()):
                continue
            try:
                of_point = measure(text, args, stored, peers, flush, heat)
            except attnforge.AttnforgeError as error:
                notes = {"attnforge": peer_kernels.first_line(error)}
                of_point = rows_of(attnforge.Problem.parse(text), {}, {}, notes, args.rounds)
            torch.cuda.empty_cache()  # attnforge's tuner allocates from the driver
            out.writerows(of_point)
            file.flush()
            rows += of_point
            print(f"{time.monotonic() - start:.0f} s, {text}: {line_of(of_point)}", file=sys.stderr)
            for row in of_point[1:]:
                if row["note"]:
                    print(f"  {row['impl']}: {row['note']}", file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default="main", help=f"lists of bench/problems, separated by commas: {', '.join(LISTS)}")
    parser.add_argument("--only", default="", metavar="WORDS", help='lines of the lists with all of these words, as "num_heads=16:1 batch=8"')
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"), help="in place of the lists' bf16")
    parser.add_argument(
        "--peers",
        help=f"these and no others, of {', '.join(peer_kernels.LOADERS)}; NAME@WORDS: only at lines of the lists that have WORDS; "
        f"default: {', '.join(peer_kernels.DEFAULT)}, those that can be imported",
    )
    parser.add_argument("--configs", metavar="FILE.csv", help="attnforge's configs are those of this earlier run; tune what it lacks")
    parser.add_argument("--tune", default="quick", choices=("none", "first_run", "quick", "full", "exhaustive"), help="first_run: as a user's first call does")
    parser.add_argument("--choose", type=int, default=0, metavar="N", help="instead of tuning: the fastest of N configs and that of --configs")
    parser.add_argument("--family", help="tune only this kernel family; in a database (ATTNFORGE_CACHE) that knows no other it then runs")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--heat-ms", type=float, default=100, help="of a peer's kernel before each round")
    parser.add_argument("--clean-l2", action="store_true", help="nothing in the L2 has to be written back while a run is timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="CSV file; default: standard output")
    parser.add_argument("--name", help="instead of --out: bench/results/<gpu>/NAME.csv, NAME_fp16.csv")
    parser.add_argument("--summary", metavar="FILE.csv", help="measure nothing, print the means of a file")
    args = parser.parse_args()
    rows = figures.read_csv(args.summary)[1] if args.summary else run(args)
    csv_on_stdout = not (args.summary or args.out or args.name)
    print(figures.summary(rows), file=sys.stderr if csv_on_stdout else sys.stdout)
    if any(row["impl"] == "attnforge" and not row["ms"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
