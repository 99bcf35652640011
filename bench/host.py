"""What attnforge costs the host: plans, launches, compiles, calls from Python. Runs bench_plan, bench_compile and host_python.

    python3 bench/host.py --bin build/release/bin --out bench/results/h200/host.csv
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import machine
from host_python import python_rows

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def benchmarks(program, *arguments):
    """{name: nanoseconds}, medians over repetitions."""
    print(f"runs {pathlib.Path(program).name} {' '.join(arguments)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [program, "--benchmark_format=json", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    if not done.stdout.strip():
        raise SystemExit(f"{program} has no benchmark for {' '.join(arguments)} (winners are read from bench/results of the checkout that built it)")
    found = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        if row.get("error_occurred"):
            raise SystemExit(f"{row['name']} failed: {row['error_message']}")
        if row["run_type"] == "iteration":
            found.setdefault(row["name"].split("/iterations")[0], []).append(row["real_time"] * NS[row["time_unit"]])
    return {name: statistics.median(times) for name, times in found.items()}


def rows_of_python(folder):
    """Calls of the package of this checkout over the library that was built beside the programs; none without torch."""
    try:
        import torch  # noqa: F401
    except ImportError:
        print("no torch for this python3: calls from Python are not timed", file=sys.stderr)
        return []
    os.environ.setdefault("ATTNFORGE_LIBRARY", str(folder.parent / "lib" / "libattnforge.so"))
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    return python_rows()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--out", help="CSV file; default: standard output")
    args = parser.parse_args()
    gpu = machine.gpu()
    folder = pathlib.Path(args.bin).resolve()
    bench_plan, bench_compile = (machine.program(folder / name) for name in ("bench_plan", "bench_compile"))
    plan = benchmarks(bench_plan, "--benchmark_repetitions=3")
    compiles = benchmarks(bench_compile, "--benchmark_filter=fwd_mma_sm80/sm_90a", "--benchmark_min_time=1")
    families = ("fwd_wgmma_sm90a", "bwd_wgmma_sm90a", "bwd_mma_sm80")
    winners = {family: benchmarks(bench_compile, f"--benchmark_filter=winner/.*{family}").values() for family in families}
    overhead = plan["launch/plan_run"] - plan["launch/bare"]
    rows = [
        ("plan found in the same process", "<= 1 us", f"{plan['plan/in_memory']:.0f} ns"),
        ("plan for a new length in a tuned bucket", "<= 5 us", f"{plan['plan/new_length_in_bucket'] / 1e3:.2f} us"),
        (
            "plan from SQLite in a fresh process, machine code included, beyond driver start",
            "<= 5 ms",
            f"{plan['plan/from_database_in_fresh_process'] / 1e6:.2f} ms",
        ),
        ("Plan::run over a bare cuLaunchKernelEx", "<= 1 us", f"{overhead / 1e3:.2f} us"),
    ]
    for name, ns in compiles.items():
        problem = name.split("/")[2]
        rows.append((f"NVRTC compile, one core, no cache: {problem}", "<= 400 ms", f"{ns / 1e6:.0f} ms"))
    for family, times in winners.items():
        median, worst = statistics.median(times) / 1e6, max(times) / 1e6
        goal = "<= 700 ms" if family.startswith("fwd") else ""
        rows.append((f"NVRTC compile of {family}, {len(times)} winners, median", goal, f"{median:.0f} ms"))
        rows.append((f"NVRTC compile of {family}, {len(times)} winners, worst", "<= 1200 ms", f"{worst:.0f} ms"))
    rows += rows_of_python(folder)
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    machine.table(args.out, ["what", "limit", "measured"], f"{gpu}, {cpu}")[1].writerows(rows)


main()
