"""What bounds each kernel family on one problem, by the GPU's own counters (Nsight Compute).

    python3 bench/counters.py --out bench/results/h200/counters.csv "fwd fp16 batch=4 num_heads=16 seqlen=4096 head_dim=128"

Every family that serves the problem is run with its choice from the database. A row is a kernel launch; all but the times are
per cent of what the GPU can do, unless the column says otherwise. Clocks are fixed while profiling: times are longer than
those of `attnforge bench`.
"""

import argparse
import csv
import json
import re
import subprocess
import sys

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


def profiled(program, problem, family, cache):
    """[{column: value}], one of each launch of a run."""
    command = ["ncu", "--csv", "--print-units", "base", "--metrics", ",".join(METRICS.values())]
    command += ["-k", f"regex:^{family}", "-c", "3" if family == "fwd_materialized" else "1"]
    command += [program, "run", "--random", "1", "--family", family, *(["--cache", cache] if cache else []), problem]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    names = {metric: column for column, metric in METRICS.items()}
    launches = {}
    for row in csv.DictReader(lines):
        kernel = re.sub(r"\(.*", "", row["Kernel Name"])
        found = launches.setdefault(row["ID"], {"family": family, "kernel": kernel})
        column = names.get(row["Metric Name"])
        if column:
            try:
                value = float(row["Metric Value"].replace(",", ""))
            except ValueError:  # n/a
                continue
            found[column] = f"{value * UNITS.get(column, 1):.6g}"
    if not launches:
        print(f"{family}: no profile; ncu said: {done.stdout.strip()[-300:]}", file=sys.stderr)
    return list(launches.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem")
    parser.add_argument("--attnforge", default="build/release/bin/attnforge")
    parser.add_argument("--families", help="comma-separated; default: all that the program lists")
    parser.add_argument("--cache", help="database with the winners of the families")
    parser.add_argument("--out", help="CSV file; default: standard output")
    args = parser.parse_args()
    program = machine.program(args.attnforge)
    gpu = machine.gpu()
    listed = json.loads(subprocess.run([program, "list", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    families = args.families.split(",") if args.families else [family["name"] for family in listed["families"]]
    rows = []
    for family in families:
        print(f"{family} ...", file=sys.stderr, flush=True)
        rows += profiled(program, args.problem, family, args.cache)
    file = open(args.out, "w", newline="") if args.out else sys.stdout
    file.write(f"# {gpu}\n# python3 bench/counters.py {' '.join(sys.argv[1:])}\n")
    writer = csv.DictWriter(file, ["family", "kernel", *METRICS], lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
