"""What bounds each kernel family on one problem, by the GPU's own counters (Nsight Compute), and kernels of others beside them.

    python3 bench/counters.py --out bench/results/h200/counters.csv "fwd fp16 batch=4 num_heads=16 seqlen=4096 head_dim=128"
    python3 bench/counters.py --configs bench/results/h200/hopper.csv --peers fa3 "fwd bf16 num_heads=8 seqlen=16384 head_dim=256 causal"

Every family that serves the problem is run with its choice from the database; with --configs only attnforge's config of that
file. A row is a kernel launch; all but the times are per cent of what the GPU can do, unless the column says otherwise. Clocks
are fixed while profiling: times are longer than those of `attnforge bench`.
"""

import argparse
import csv
import re
import subprocess
import sys

import figures
import machine

METRICS = {
    "time_us": "gpu__time_duration.sum",
    "instructions_1e6": "sm__inst_executed.sum",
    "issue": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "alu": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "exponential": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "shared_memory": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active",
    "bank_conflicts_1e6": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l2_bytes_1e9": "lts__t_bytes.sum",
    "dram_bytes_1e9": "dram__bytes.sum",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
UNITS = {"time_us": 1e-3, "instructions_1e6": 1e-6, "bank_conflicts_1e6": 1e-6, "l2_bytes_1e9": 1e-9, "dram_bytes_1e9": 1e-9}


def runs_of(problem, args, program, families):
    """(label, options of ncu, command whose kernels it counts) of attnforge's families, or its config of an earlier run, and of the peers."""
    choices = [["--config", stored_config(args.configs, problem)]] if args.configs else [["--family", family] for family in families]
    for choice in choices:
        family = choice[1].split()[0]
        count = "3" if family == "fwd_materialized" else "1"
        command = [program, "run", "--random", "1", *choice, *(["--cache", args.cache] if args.cache else []), problem]
        yield family, ["-k", f"regex:^{family}", "-c", count], command
    for peer in args.peers.split(",") if args.peers else []:
        yield peer, ["--profile-from-start", "off"], [sys.executable, __file__, "--run-peer", peer, problem]


def run_peer(name, text):
    """Once for what it compiles, and once to be counted."""
    import attnforge
    import peer_kernels
    import peer_runs
    import torch

    (peer,), _ = peer_kernels.find([name])
    problem = attnforge.Problem.parse(text)
    run = peer.prepare(problem, *peer_runs.tensors(problem))[0]
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def stored_config(path, text):
    """attnforge's config for this problem in a file of peers.py."""
    import attnforge
    import peers

    config = figures.stored_configs(path, figures.point_of).get(peers.point_of(attnforge.Problem.parse(text)))
    if not config:
        raise SystemExit(f"{path} has no config of attnforge for {text}")
    return config


def profiled(label, options, command):
    """[{column: value}], one of each launch of a run."""
    ncu = ["ncu", "--csv", "--print-units", "base", "--metrics", ",".join(METRICS.values()), *options]
    done = subprocess.run([*ncu, *command], stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    names = {metric: column for column, metric in METRICS.items()}
    launches = {}
    for row in csv.DictReader(lines):
        kernel = re.sub(r"\(.*", "", row["Kernel Name"])
        found = launches.setdefault(row["ID"], {"family": label, "kernel": kernel})
        column = names.get(row["Metric Name"])
        if column:
            try:
                value = float(row["Metric Value"].replace(",", ""))
            except ValueError:  # n/a
                continue
            found[column] = f"{value * UNITS.get(column, 1):.6g}"
    if not launches:
        print(f"{label}: no profile; ncu said: {done.stdout.strip()[-300:]}", file=sys.stderr)
    return list(launches.values())


def main():
    parser = machine.options(__doc__, runs_program=True)
    parser.add_argument("problem", nargs="+")
    parser.add_argument("--families", help="comma-separated; default: all that the program lists")
    parser.add_argument("--configs", metavar="FILE.csv", help="attnforge's config of this file of peers.py, in place of families")
    parser.add_argument("--peers", help="comma-separated, of those that peers.py has")
    parser.add_argument("--cache", help="database with the winners of the families")
    parser.add_argument("--run-peer", metavar="NAME", help=argparse.SUPPRESS)  # what ncu runs
    args = parser.parse_args()
    machine.package()
    if args.run_peer:
        return run_peer(args.run_peer, args.problem[0])
    program = machine.program(args.attnforge)
    gpu = machine.gpu()
    families = args.families.split(",") if args.families else [each["name"] for each in machine.answer(program, "list", "--json")["families"]]
    columns = ["problem", "family", "kernel", *METRICS]
    file, out = machine.table(args.out, columns, gpu)
    for problem in args.problem:
        for label, options, command in runs_of(problem, args, program, families):
            print(f"{problem}: {label} ...", file=sys.stderr, flush=True)
            out.writerows([problem, *(row.get(column, "") for column in columns[1:])] for row in profiled(label, options, command))
            file.flush()


if __name__ == "__main__":
    main()
