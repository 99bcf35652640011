#!/usr/bin/env python3
"""Makes data/winners/<GPU>.jsonl of what attnforge cache export wrote, on standard input: of each problem the choice of its most rigorous search.

    attnforge cache export --cache h200.db | python3 tools/winners.py

A file that is there keeps its other problems. data/winners/README.md has the whole way.
"""

import json
import pathlib
import sys

WINNERS = pathlib.Path(__file__).resolve().parent.parent / "data/winners"
RIGORS = ("quick", "full", "exhaustive")
HEAD = ("device_class", "driver", "nvrtc", "attnforge_version", "measured_at")


def winners_of(lines):
    """{device_class: {problem: the try that won}}"""
    searches, tries = {}, {}
    for line in lines:
        row = json.loads(line)
        key = row["device_class"], row["problem"]
        if row["kind"] == "search":
            rank = RIGORS.index(row["rigor"]), row["finished_at"], row["winner"]
            searches[key] = max(searches.get(key, rank), rank)
        elif row["status"] == "ok" and not row["estimated"]:
            tries.setdefault((*key, row["config"]), []).append(row)
    found = {}
    for (gpu, problem), (rank, _, config) in sorted(searches.items()):
        if (gpu, problem, config) in tries and " forced " not in problem:
            best = max(tries[gpu, problem, config], key=lambda row: row["measured_at"])
            found.setdefault(gpu, {})[problem] = {**best, "rigor": RIGORS[rank]}
    return found


def write(gpu, won):
    name = gpu.split(" sm_")[0].removeprefix("NVIDIA ").lower().replace(" ", "_")
    path = WINNERS / f"{name}.jsonl"
    head = {"format": 1, **{key: max(row[key] for row in won.values()) for key in HEAD}}
    rows = {}
    if path.exists():
        old, *kept = map(json.loads, path.read_text().splitlines())
        rows = {row["problem"]: row for row in kept}
        if old["nvrtc"] != head["nvrtc"]:
            sys.exit(f"{path} is of NVRTC {old['nvrtc']}, the new winners are of {head['nvrtc']}: measure with that, or all anew without the file")
    if len({row["nvrtc"] for row in won.values()}) > 1:
        sys.exit(f"winners of {gpu} were measured with several versions of NVRTC")
    for problem, row in won.items():
        texts = {"problem": problem, "config": row["config"], "digest": row["digest"], "code": "", "rigor": row["rigor"]}
        rows[problem] = texts | {key: round(row[key], 4) for key in ("time_us", "noise", "samples", "clock_mhz")}
    lines = [head, *(rows[problem] for problem in sorted(rows))]
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    print(f"{path}: {len(won)} new, {len(rows)} in all; now ATTNFORGE_UPDATE_GOLDEN=1 ctest -R ShippedFiles")


if __name__ == "__main__":
    for each in winners_of(sys.stdin).items():
        write(*each)
