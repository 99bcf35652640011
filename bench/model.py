"""How well a family's model orders its configs: against an exhaustive search that a database holds.

    attnforge tune --file problems.txt --family fwd_wgmma_sm90a --rigor exhaustive --cache all.db
    python3 bench/model.py --cache all.db --family fwd_wgmma_sm90a --arch sm_90a --out bench/results/h200/model.csv

For each problem: how much slower than the best of all configs the model's first choice is (what a user gets who never tunes),
and the best of its first twelve (half of them are what a quick search tries first). Needs no GPU.
"""

import collections
import json
import statistics
import sys

import machine

FIRST = 12
COLUMNS = ["problem", "configs", "best_us", "untuned", f"best_of_first_{FIRST}", "untuned_config"]


def measured(program, cache, family):
    """{problem: {config: microseconds}} of what ran and was right."""
    times = collections.defaultdict(dict)
    for line in machine.answer(program, "cache", "export", "--cache", cache).splitlines():
        row = json.loads(line)
        if row["kind"] == "try" and row["family"] == family and row["status"] == "ok" and not row["estimated"]:
            times[row["problem"]][row["config"]] = row["time_us"]
    return times


def main():
    parser = machine.options(__doc__, runs_program=True)
    parser.add_argument("--cache", required=True, help="database with exhaustive searches")
    parser.add_argument("--family", required=True)
    parser.add_argument("--arch", required=True, help="of the GPU that the database was measured on, e.g. sm_90a")
    args = parser.parse_args()
    program, rows = machine.program(args.attnforge), []
    for problem, times in measured(program, args.cache, args.family).items():
        of_model = ("--arch", args.arch, "--family", args.family, "--no-compile", "--candidates", "0", "--json")
        listed = machine.answer(program, "inspect", *of_model, problem)["candidates"]
        order = [each["config"] for each in listed if each["config"] in times]
        if len(order) < FIRST:
            continue
        best = min(times.values())
        first, of_twelve = times[order[0]], min(times[config] for config in order[:FIRST])
        rows.append([problem, len(order), f"{best:.2f}", f"{first / best:.3f}", f"{of_twelve / best:.3f}", order[0]])
    if not rows:
        raise SystemExit(f"{args.cache} has no search of {args.family}: see --help")
    machine.table(args.out, COLUMNS, f"of the searches in {args.cache}")[1].writerows(rows)
    untuned, twelve = [float(row[3]) for row in rows], [float(row[4]) for row in rows]
    said = f"untuned / best median {statistics.median(untuned):.3f}, most {max(untuned):.3f}; best of the first {FIRST} / best most {max(twelve):.3f}"
    print(f"{len(rows)} problems: {said}", file=sys.stderr)


if __name__ == "__main__":
    main()
