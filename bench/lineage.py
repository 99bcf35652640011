"""Runs the published points of earlier projects and prints theirs, PyTorch's and ours: ./dev bench lineage.

    python3 bench/lineage.py --tune full --name lineage                          # into bench/results/<gpu>/lineage.csv
    python3 bench/lineage.py --only progression,ladder --tune quick --time-limit 10
    python3 bench/lineage.py --summary bench/results/h200/lineage.csv            # no GPU: a table of what was measured

The points are bench/lineage.txt's. Measured as bench/peers.py does: one process, the same tensors, cold L2, shuffled rounds on a
heated card, medians. Their times are of their GPUs; ratios within one run are what compares. max_diff is to fp64 on the GPU,
in brackets the peer's.
"""

import argparse
import csv
import inspect
import pathlib
import sys
import time
import warnings

import figures
import lineage_points
import machine
import peer_kernels
import peers

HERE = pathlib.Path(__file__).resolve().parent
LEAST_ROUNDS = 5
SLOW_MS = 20.0  # a run from which fewer rounds tell the same


def accuracy(run, q, k, v, causal):
    """(largest difference, cosine similarity) of run() to attention in fp64, one sequence at a time."""
    import torch

    ours = run()
    worst, dot, left, right = 0.0, 0.0, 0.0, 0.0
    for index in range(q.shape[0]):
        q64, k64, v64 = (x[index].double().transpose(0, 1) for x in (q, k, v))
        scores = q64 @ k64.transpose(1, 2) / q64.shape[-1] ** 0.5
        if causal:
            rows, keys = scores.shape[-2:]
            hidden = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows).logical_not()
            scores.masked_fill_(hidden, float("-inf"))
        expected = torch.softmax(scores, -1) @ v64
        got = ours[index].double().transpose(0, 1)
        worst = max(worst, (got - expected).abs().max().item())
        dot += (got * expected).sum().item()
        left += (got * got).sum().item()
        right += (expected * expected).sum().item()
    return worst, dot / (left * right) ** 0.5


def measure(point, args, flush, heat):
    """What the columns of lineage_points.COLUMNS hold at a point. Raises what attnforge and PyTorch raise."""
    import attnforge
    import peer_runs

    family = point.asked.get("family")
    problem = attnforge.Problem.parse(point.problem)
    if args.tune != "none":
        attnforge.tune(str(problem), rigor=args.tune, family=family, time_limit_s=args.time_limit)
    attnforge.configure(family=family or "")
    q, k, v = peer_runs.tensors(problem)
    asked, missing = peer_kernels.find([name for name in point.asked.get("peers", "").split(",") if name])
    runs, notes = peer_runs.implementations(problem, q, k, v, asked)
    peer_runs.drop_wrong(runs, notes)
    for name, why in (missing | notes).items():
        print(f"  {name}: {why}", file=sys.stderr)
    if "attnforge" in notes:
        raise SystemExit(f"attnforge is {notes['attnforge']}")
    rounds = min(args.rounds, LEAST_ROUNDS) if peer_runs.once_ms(runs["attnforge"]) > SLOW_MS else args.rounds
    times = peer_runs.time_ms(runs, rounds, heat, flush)
    ms, spread, _ = times.pop("attnforge")
    plan = next(iter(attnforge.plan_cache))
    found = {"ms": ms, "spread": spread, "rounds": rounds, "config": plan.config, "family": plan.config.split()[0]}
    found["tflops"] = peers.flops(problem) / ms / 1e9
    found["ns_per_token_head"] = ms * 1e6 / (problem.batch * problem.seqlen_q * problem.num_heads_q)
    found["workspace_bytes"] = plan.workspace_bytes
    if times:
        best = min(times, key=lambda name: times[name].ms)
        found |= {"peer": best, "peer_ms": times[best].ms, "ratio": times[best].ms / ms}
        found["other_peers"] = " ".join(f"{name}={other.ms:.4f}" for name, other in times.items() if name != best)
    if "max_diff" in point.asked:
        found["max_diff"], found["cosine"] = accuracy(runs["attnforge"], q, k, v, problem.causal)
        if times:
            found["peer_max_diff"], _ = accuracy(runs[best], q, k, v, problem.causal)
    return found


def run_points(points, measure_at, file):
    """The rows of `points`, written to `file` as they come. A point that fails is a row with its reason."""
    out = csv.DictWriter(file, lineage_points.COLUMNS)
    out.writeheader()
    rows = []
    start = time.monotonic()
    for index, point in enumerate(points, 1):
        try:
            found = measure_at(point)
        except (RuntimeError, ValueError, SystemExit) as error:  # attnforge's and PyTorch's; SystemExit: outputs that differ
            found = {"note": (str(error).splitlines() or [type(error).__name__])[0]}
        row = lineage_points.row_of(point, found)
        out.writerow(row)
        file.flush()
        rows.append(row)
        cells = ", ".join(cell for cell in lineage_points.cells(row) if cell)
        print(f"{index} of {len(points)}, {time.monotonic() - start:.0f} s: {cells}", file=sys.stderr)
    return rows


def output_path(args, gpu):
    return figures.result_path(gpu, args.name) if args.name else args.out


def run(args):
    sys.path.insert(0, str(HERE.parent / "python"))
    torch = machine.torch()
    import attnforge
    import peer_runs

    warnings.filterwarnings("ignore")
    peer_runs.seed(args.seed)
    flush = peer_runs.ColdL2()
    heat = peer_runs.Heat(args.heat_ms)
    gpu, driver = peer_runs.machine()
    path = output_path(args, gpu)
    file = open(path, "w", newline="") if path else sys.stdout
    file.write(f"# {gpu}, driver {driver}, torch {torch.__version__}, attnforge {attnforge.version()}\n")
    file.write(f"# {machine.command()}\n")
    def measure_at(point):
        try:
            return measure(point, args, flush, heat)
        finally:
            torch.cuda.empty_cache()  # attnforge's tuner allocates from the driver

    return run_points(lineage_points.of_projects(lineage_points.read_points(), args.only), measure_at, file)


def main():
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__).splitlines()[0])
    parser.add_argument("--only", default="", help="projects of lineage.txt, separated by commas; default: all")
    parser.add_argument("--tune", default="quick", choices=("none", "quick", "full", "exhaustive"))
    parser.add_argument("--time-limit", type=float, default=0.0, help="seconds for the tuning of a point; 0: none")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--heat-ms", type=float, default=40, help="of a peer's kernel before each round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="CSV file; default: standard output")
    parser.add_argument("--name", help="instead of --out: bench/results/<gpu>/NAME.csv")
    parser.add_argument("--summary", metavar="FILE.csv", help="measure nothing, print the table of a file")
    args = parser.parse_args()
    rows = figures.read_csv(args.summary)[1] if args.summary else run(args)
    csv_on_stdout = not (args.summary or args.out or args.name)
    print(lineage_points.summary(rows), file=sys.stderr if csv_on_stdout else sys.stdout)


if __name__ == "__main__":
    main()
