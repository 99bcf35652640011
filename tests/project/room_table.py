#!/usr/bin/env python3
"""Which folder of templates/ may include which: the rule of rooms, read off every #include line, and off host code that names a header of
a part for the generated entry.

usage: room_table.py ROOT    exit 1 when a line breaks ROWS and is not in KNOWN, or when a row of KNOWN is gone
"""
import pathlib
import re
import sys

BASE = "."  # base.cuh shape.h low_bits.h base_params.h embedded.h registry.h
DEVICE = f"{BASE} ptx tile pieces"
OF_PARTS = f"{DEVICE} host"  # without a row
ROWS = {  # folder -> folders; its own is understood. `parts/*`: of any part
    "ptx": BASE,
    "tile": f"{BASE} ptx",
    "pieces": DEVICE,
    "host": BASE,
    "hopper": DEVICE,
    "backward": f"{DEVICE} host",
    "parts": "host",  # list.cpp alone
    "parts/sinks": f"{DEVICE} host backward",
    "parts/group_splits": f"{DEVICE} host backward",
    "parts/splits": f"{DEVICE} host parts/lengths",
    "parts/key_lists": f"{DEVICE} host parts/lengths",
    "parts/pages": f"{DEVICE} host parts/key_lists",
    "parts/widening": f"{DEVICE} host parts/pages",
    "parts/block_mask": f"{DEVICE} host parts/key_lists",
    "parts/query_bits": f"{DEVICE} host backward parts/block_mask parts/user_code",
    "parts/user_code": f"{DEVICE} host backward parts/key_lists",
    "ops": f"{DEVICE} host parts/* oracle",
    "oracle": f"{DEVICE} host backward parts/*",
    "ladder": f"{DEVICE} host",
    "fwd": f"{DEVICE} host hopper",
    "bwd": f"{DEVICE} host hopper backward",
}
# Lines that know a part and are to go: file, header, and what takes them away.
KNOWN = {
    ("ladder/of_shape.cuh", "parts/softcap/score.cuh"): "stays: ladder kernels have no entry that names pieces",
}
QUOTED = re.compile(r'"(parts/[\w/]+\.(?:cuh|h))"')
INCLUDE = re.compile(r'^\s*#\s*include\s+"(?:templates/)?([^"]+)"')


def room(path):
    parts = path.split("/")
    if len(parts) == 1:
        return BASE
    if parts[0] == "parts" and len(parts) > 2:
        return "/".join(parts[:2])
    return {"fwd": "fwd", "bwd": "bwd"}.get(parts[0][:3], parts[0])


def row(of):
    return ROWS.get(of, OF_PARTS if of.startswith("parts/") else BASE).split()


def own(a, b):  # a family sees itself, and what its group shares
    first, second = a.split("/"), b.split("/")
    if first[0] != second[0]:
        return False
    if first[0] == "parts":
        return first[:2] == second[:2]
    return first[0] not in ("ops", "oracle", "ladder") or len(second) == 2 or first[1] == second[1]


def main():
    root = pathlib.Path(sys.argv[1]) / "templates"
    files = {str(f.relative_to(root)) for f in root.rglob("*") if f.suffix in (".h", ".cpp", ".cuh")}
    broken, seen, lines = [], set(), 0
    for file in sorted(files - {"registry.cpp"}):
        for line in (root / file).read_text().splitlines():
            match = INCLUDE.match(line)
            if not match:
                for target in QUOTED.findall(line):
                    allowed = row(room(file))
                    if own(file, target) or room(target) in allowed or "parts/*" in allowed:
                        continue
                    broken.append(f"{file} names {target}: not in the row of {room(file)}")
                continue
            if match.group(1) not in files:
                continue
            target, lines = match.group(1), lines + 1
            allowed = row(room(file))
            if own(file, target) or room(target) in allowed or ("parts/*" in allowed and room(target).startswith("parts/")):
                continue
            if (file, target) in KNOWN:
                seen.add((file, target))
            else:
                broken.append(f"{file} includes {target}: not in the row of {room(file)}")
    broken += [f"KNOWN has {a} -> {b}, which is not there any more" for a, b in sorted(KNOWN.keys() - seen)]
    print("\n".join(broken))
    print(f"{lines} lines between files of templates/, {len(seen)} known to be wrong, {len(broken)} broken")
    sys.exit(bool(broken))


main()
