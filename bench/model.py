"""How well a family's model orders its configs: against an exhaustive search that a database holds.

    attnforge tune --file problems.txt --family fwd_wgmma_sm90a --rigor exhaustive --cache all.db
    python3 bench/model.py --cache all.db --family fwd_wgmma_sm90a --arch sm_90a --out bench/results/h200/model.csv

For each problem: how much slower than the best of all configs the model's first choice is (what a user gets who never tunes),
and the best of its first twelve (half of them are what a quick search tries first). Needs no GPU.
"""

import argparse
import collections
import csv
import json
import pathlib
import statistics
import subprocess
import sys

import machine

FIRST = 12


def lines(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout


def measured(program, cache, family):
    """{problem: {config: microseconds}} of what ran and was right."""
    times = collections.defaultdict(dict)
    for line in lines(program, "cache", "export", "--cache", cache).splitlines():
        row = json.loads(line)
        if row["kind"] == "try" and row["family"] == family and row["status"] == "ok" and not row["estimated"]:
            times[row["problem"]][row["config"]] = row["time_us"]
    return times


def ordered(program, problem, family, arch):
    """Configs as the model ranks them now."""
    text = lines(
        program, "inspect", "--arch", arch, "--family", family, "--no-compile", "--candidates", "0", "--json", problem
    )
    return [each["config"] for each in json.loads(text)["candidates"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnforge", default="build/release/bin/attnforge")
    parser.add_argument("--cache", required=True, help="database with exhaustive searches")
    parser.add_argument("--family", required=True)
    parser.add_argument("--arch", required=True, help="of the GPU that the database was measured on, e.g. sm_90a")
    parser.add_argument("--out", help="CSV file; default: standard output")
    args = parser.parse_args()
    program = machine.program(args.attnforge)
    rows = []
    for problem, times in measured(program, args.cache, args.family).items():
        order = [config for config in ordered(program, problem, args.family, args.arch) if config in times]
        if len(order) < FIRST:
            continue
        best = min(times.values())
        first, of_twelve = times[order[0]], min(times[config] for config in order[:FIRST])
        rows.append([problem, len(order), f"{best:.2f}", f"{first / best:.3f}", f"{of_twelve / best:.3f}", order[0]])
    if not rows:
        raise SystemExit(f"{args.cache} has no search of {args.family}: see --help")
    file = open(args.out, "w", newline="") if args.out else sys.stdout
    name = pathlib.Path(args.cache).name
    file.write(f"# python3 bench/model.py --cache {name} --family {args.family} --arch {args.arch}\n")
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["problem", "configs", "best_us", "untuned", f"best_of_first_{FIRST}", "untuned_config"])
    out.writerows(rows)
    untuned, twelve = [float(row[3]) for row in rows], [float(row[4]) for row in rows]
    print(
        f"{len(rows)} problems: untuned / best median {statistics.median(untuned):.3f}, most {max(untuned):.3f}; "
        f"best of the first {FIRST} / best most {max(twelve):.3f}",
        file=sys.stderr,
    )


main()
