#!/usr/bin/env python3
"""Makes tests/tuner/recorded_spaces.txt of what attnforge cache export wrote, on standard input: exhaustive measurements, a line a config.

    attnforge tune --rigor exhaustive --cache all.db fwd bf16 ...
    attnforge cache export --cache all.db | python3 tools/spaces.py

    space fwd bf16 batch=1 ...          a problem's text
    gpu NVIDIA H200 sm_90a ...; ...     its class, driver, NVRTC, date
    family fwd_wgmma_sm90a warpgroups block_n ...
    204.8 3 128 ...                     the median in us, -: failed; then the fields' values
"""

import json
import pathlib
import sys

SPACES = pathlib.Path(__file__).resolve().parent.parent / "tests/tuner/recorded_spaces.txt"


def rows_of(lines):
    """{problem: {family and names of fields: [try]}}"""
    spaces = {}
    for line in lines:
        row = json.loads(line)
        if row["kind"] != "try" or row["estimated"]:
            continue
        family, *fields = row["config"].split()
        names = " ".join([family, *(field.split("=")[0] for field in fields)])
        spaces.setdefault(row["problem"], {}).setdefault(names, []).append(row)
    return spaces


def text_of(row):
    values = " ".join(field.split("=")[1] for field in row["config"].split()[1:])
    us = float(f"{row['time_us']:.5g}")
    return f"{us:g} {values}" if row["status"] == "ok" else f"- {values}"


def main():
    spaces = rows_of(sys.stdin)
    lines = ["# Exhaustive measurements: tools/spaces.py says how they are made and what a line is."]
    for problem, families in spaces.items():
        every = [row for rows in families.values() for row in rows]
        last = max(every, key=lambda row: row["measured_at"])
        lines += [f"space {problem}", f"gpu {last['device_class']}; driver {last['driver']}, NVRTC {last['nvrtc']}, {last['measured_at'][:10]}"]
        for names, rows in families.items():
            rows.sort(key=lambda row: (row["status"] != "ok", row["time_us"], row["config"]))
            lines += [f"family {names}", *map(text_of, rows)]
    SPACES.write_text("\n".join(lines) + "\n")
    print(f"{SPACES}: {len(spaces)} spaces, {sum(len(rows) for each in spaces.values() for rows in each.values())} configs")


if __name__ == "__main__":
    main()
