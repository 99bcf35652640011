"""Times attnforge and PyTorch's attention backends in one process, on the same tensors, and prints the ratios.

    python3 bench/peers.py --list main --tune quick --out bench/results/h200/peers_main.csv

Cold L2 (a buffer larger than it is cleared between samples), random normal inputs, all implementations in shuffled rounds on a
warm card, medians over the rounds, on the GPU's own clock. Outputs are compared before anything is timed.
"""

import argparse
import csv
import pathlib
import random
import statistics
import subprocess
import sys
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import attnforge  # noqa: E402

BACKENDS = {
    "torch-flash": SDPBackend.FLASH_ATTENTION,
    "torch-cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch-efficient": SDPBackend.EFFICIENT_ATTENTION,
}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
COLUMNS = (
    "impl,dtype,batch,num_heads_q,num_heads_kv,seqlen_q,seqlen_kv,head_dim,head_dim_v,causal,ms,tflops,"
    "ratio_to_torch_flash,rounds,spread,config"
).split(",")


def read_list(name):
    for line in (HERE / "problems" / f"{name}.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            yield attnforge.Problem.parse(line)


def flops(problem):
    """Of the visible pairs, as attnforge counts: causal is a little more than half."""
    rows, keys = problem.seqlen_q, problem.seqlen_kv
    pairs = sum(min(keys, max(0, i + keys - rows + 1)) for i in range(rows)) if problem.causal else rows * keys
    return 2.0 * problem.batch * problem.num_heads_q * pairs * (problem.head_dim + problem.head_dim_v)


def implementations(problem, q, k, v, names):
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    options = {"is_causal": problem.causal, "enable_gqa": problem.num_heads_q != problem.num_heads_kv}

    def ours():
        return attnforge.attention(q, k, v, causal=problem.causal, return_lse=True)[0]

    def peer(backend):
        with sdpa_kernel(backend), torch.no_grad():
            return F.scaled_dot_product_attention(*heads_first, **options).transpose(1, 2)

    runs = {"attnforge": ours}
    for name in names:
        try:
            peer(BACKENDS[name])
        except RuntimeError as error:
            print(f"  {name} does not serve this: {str(error).splitlines()[0][:80]}", file=sys.stderr)
            continue
        runs[name] = lambda backend=BACKENDS[name]: peer(backend)
    return runs


def check(runs, problem):
    """All against the first peer: a wrong kernel is not timed."""
    outputs = {name: run().float() for name, run in runs.items()}
    reference = outputs.get("torch-flash", outputs.get("torch-cudnn"))
    if reference is None:
        return
    for name, output in outputs.items():
        error = ((output - reference).norm() / reference.norm()).item()
        if not error < 1e-2:
            raise SystemExit(f"{name} differs from PyTorch by {error:.1e} on {problem}")


def time_ms(runs, rounds, flush):
    """Medians and spreads ((q3 - q1) / median) of one sample each per round, in shuffled order."""
    samples = {name: [] for name in runs}
    for _ in range(3):  # warm the card and the allocator up
        for run in runs.values():
            run()
    for _ in range(rounds):
        names = list(runs)
        random.shuffle(names)
        events = []
        for name in names:
            flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            runs[name]()
            stop.record()
            events.append((name, start, stop))
        torch.cuda.synchronize()
        for name, start, stop in events:
            samples[name].append(start.elapsed_time(stop))
    result = {}
    for name, times in samples.items():
        low, middle, high = statistics.quantiles(times, n=4)
        result[name] = (middle, (high - low) / middle)
    return result


def measure(problem, args, flush, out):
    dtype = DTYPES[problem.dtype_q]
    shape = (problem.batch, problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    kv_shape = (problem.batch, problem.seqlen_kv, problem.num_heads_kv)
    q = torch.randn(shape, device="cuda", dtype=dtype)
    k = torch.randn(*kv_shape, problem.head_dim, device="cuda", dtype=dtype)
    v = torch.randn(*kv_shape, problem.head_dim_v, device="cuda", dtype=dtype)
    if args.tune != "none":
        attnforge.tune(str(problem), rigor=args.tune)
    attnforge.plan_cache.clear()
    runs = implementations(problem, q, k, v, args.peers.split(","))
    check(runs, problem)
    times = time_ms(runs, args.rounds, flush)
    config = next(plan.config for plan in attnforge.plan_cache)
    flash = times.get("torch-flash", (None,))[0]
    for name, (ms, spread) in times.items():
        ratio = f"{flash / ms:.3f}" if flash else ""
        sizes = [problem.batch, problem.num_heads_q, problem.num_heads_kv, problem.seqlen_q, problem.seqlen_kv]
        sizes += [problem.head_dim, problem.head_dim_v, int(problem.causal)]
        row = [name, problem.dtype_q, *sizes, f"{ms:.4f}", f"{flops(problem) / ms / 1e9:.1f}", ratio, args.rounds]
        out.writerow(row + [f"{spread:.3f}", config if name == "attnforge" else ""])
    return flash / times["attnforge"][0] if flash else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default="main", help="a list of bench/problems: main, odd_head_dims")
    parser.add_argument("--peers", default="torch-flash,torch-cudnn", help=", ".join(BACKENDS))
    parser.add_argument("--tune", default="quick", choices=("none", "quick", "full", "exhaustive"))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="CSV file; default: standard output")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    flush = torch.empty(160 << 20, dtype=torch.uint8, device="cuda")
    file = open(args.out, "w", newline="") if args.out else sys.stdout
    gpu = torch.cuda.get_device_name()
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False
    ).stdout.split("\n")[0]
    file.write(f"# {gpu}, driver {driver}, torch {torch.__version__}, attnforge {attnforge.version()}\n")
    file.write(f"# python3 bench/peers.py {' '.join(sys.argv[1:])}\n")
    out = csv.writer(file)
    out.writerow(COLUMNS)
    ratios = []
    for problem in read_list(args.list):
        ratio = measure(problem, args, flush, out)
        file.flush()
        if ratio:
            ratios.append(ratio)
        print(f"{problem}: {f'{ratio:.3f}x torch-flash' if ratio else 'no torch-flash'}", file=sys.stderr)
    if ratios:
        print(
            f"attnforge / torch-flash: geometric mean {statistics.geometric_mean(ratios):.3f}, "
            f"least {min(ratios):.3f}, {len(ratios)} points",
            file=sys.stderr,
        )


main()
