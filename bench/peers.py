"""Times attnforge and PyTorch's attention backends in one process, on the same tensors, and prints the ratios.

    python3 bench/peers.py --list main --tune quick --out bench/results/h200/peers_main.csv
    python3 bench/peers.py --summary bench/results/h200/hopper.csv      # only the means, of times taken earlier

Cold L2 (a buffer larger than it is cleared between samples), random normal inputs, all implementations in shuffled rounds on a
heated card, medians over the rounds, on the GPU's own clock. Outputs are compared before anything is timed. FlashAttention-3
and ThunderKittens are not in the run: figures.py says how the ratios to them come about.
"""

import argparse
import csv
import pathlib
import statistics
import sys
import warnings

import figures

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = (
    "impl,dtype,batch,num_heads_q,num_heads_kv,seqlen_q,seqlen_kv,head_dim,head_dim_v,causal,ms,tflops,"
    "ratio_to_torch_flash,ratio_to_torch_cudnn,ratio_to_fa3,ratio_to_best_peer,rounds,spread,config"
).split(",")
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


def rows_of(problem, times, reference, rounds, config):
    """The rows of a point, attnforge's first and with every ratio that is known."""
    sizes = [problem.batch, problem.num_heads_q, problem.num_heads_kv, problem.seqlen_q, problem.seqlen_kv]
    sizes += [problem.head_dim, problem.head_dim_v, int(problem.causal)]
    point = figures.Point(problem.dtype_q, *sizes)
    known = figures.ratios({name: ms for name, (ms, _) in times.items()}, reference.get(point, {}))
    flash = times.get("torch-flash", (None,))[0]
    rows = []
    for name, (ms, spread) in times.items():
        row = {"impl": name, **point._asdict(), "ms": f"{ms:.4f}", "tflops": f"{flops(problem) / ms / 1e9:.1f}"}
        row |= {"rounds": rounds, "spread": f"{spread:.3f}", "ratio_to_torch_flash": f"{flash / ms:.3f}" if flash else ""}
        if name == "attnforge":
            ratios = {"torch_cudnn": known.get("torch-cudnn"), "fa3": known.get("fa3"), "best_peer": figures.best_peer(known)}
            row |= {f"ratio_to_{peer}": f"{ratio:.3f}" for peer, ratio in ratios.items() if ratio}
            row["config"] = config
        rows.append(row)
    return rows


def measure(problem, args, reference, flush, heat):
    import attnforge
    import peer_runs

    if args.tune != "none":
        attnforge.tune(str(problem), rigor=args.tune, family=args.family)
    attnforge.plan_cache.clear()
    runs = peer_runs.implementations(problem, *peer_runs.tensors(problem), args.peers.split(","))
    peer_runs.check(runs, problem)
    times = peer_runs.time_ms(runs, args.rounds, heat, flush)
    config = next(plan.config for plan in attnforge.plan_cache)
    return rows_of(problem, times, reference, args.rounds, config)


def line_of(row, others):
    """What is printed of a point: TFLOP/s of all, and attnforge's ratios."""
    text = ", ".join(f"{each['impl']} {each['tflops']}" for each in [row, *others])
    ratios = [f"{row[f'ratio_to_{peer}']}x {peer}" for peer in ("torch_cudnn", "fa3", "best_peer") if row.get(f"ratio_to_{peer}")]
    return "; ".join([text, *ratios])


def output_path(args, gpu):
    if not args.name:
        return args.out
    folder = HERE / "results" / gpu.lower().removeprefix("nvidia ").replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{args.name}{'' if args.dtype == 'bf16' else '_' + args.dtype}.csv"


def run(args):
    sys.path.insert(0, str(HERE.parent / "python"))
    import attnforge
    import peer_runs
    import torch

    warnings.filterwarnings("ignore")
    peer_runs.seed(args.seed)
    flush = torch.empty(160 << 20, dtype=torch.uint8, device="cuda")
    heat = peer_runs.Heat(args.heat_ms)
    gpu, driver = peer_runs.machine()
    path = output_path(args, gpu)
    file = open(path, "w", newline="") if path else sys.stdout
    file.write(f"# {gpu}, driver {driver}, torch {torch.__version__}, attnforge {attnforge.version()}\n")
    file.write(f"# python3 bench/peers.py {' '.join(sys.argv[1:])}\n")
    out = csv.DictWriter(file, COLUMNS, restval="")
    out.writeheader()
    reference = figures.times(figures.read_csv(figures.REFERENCE)[1])
    rows = []
    for name in args.list.split(","):
        for text in read_list(name, args.dtype):
            problem = attnforge.Problem.parse(text)
            of_point = measure(problem, args, reference, flush, heat)
            out.writerows(of_point)
            file.flush()
            rows += of_point
            print(f"{problem}: {line_of(of_point[0], of_point[1:])}", file=sys.stderr)
    return rows


def print_summary(rows, file):
    ratios = [found["torch-flash"] for found in figures.all_ratios(rows).values() if "torch-flash" in found]
    if ratios:
        mean, least = statistics.geometric_mean(ratios), min(ratios)
        print(f"attnforge / torch-flash: geometric mean {mean:.3f}, least {least:.3f}, {len(ratios)} points", file=file)
    print(figures.summary(rows), file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default="main", help=f"lists of bench/problems, separated by commas: {', '.join(LISTS)}")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"), help="in place of the lists' bf16")
    parser.add_argument("--peers", default="torch-flash,torch-cudnn", help="torch-flash, torch-cudnn, torch-efficient")
    parser.add_argument("--tune", default="quick", choices=("none", "quick", "full", "exhaustive"))
    parser.add_argument("--family", help="tune only this kernel family; in a database (ATTNFORGE_CACHE) that knows no other it then runs")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--heat-ms", type=float, default=100, help="of a peer's kernel before each round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="CSV file; default: standard output")
    parser.add_argument("--name", help="instead of --out: bench/results/<gpu>/NAME.csv, NAME_fp16.csv")
    parser.add_argument("--summary", metavar="FILE.csv", help="measure nothing, print the means of a file")
    args = parser.parse_args()
    rows = figures.read_csv(args.summary)[1] if args.summary else run(args)
    csv_on_stdout = not (args.summary or args.out or args.name)
    print_summary(rows, sys.stderr if csv_on_stdout else sys.stdout)


if __name__ == "__main__":
    main()
