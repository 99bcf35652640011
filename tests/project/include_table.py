#!/usr/bin/env python3
"""Checks every #include line against the table "Who may include whom" of docs/ARCHITECTURE.md.

usage: include_table.py ROOT          check the tree
       include_table.py --self-test   check that the table refuses what it must
Exit 1 when a line breaks the table; every such line is printed.
"""
import pathlib
import re
import sys

POSIX = r"(dlfcn|elf|errno|fcntl|grp|link|poll|pthread|pwd|signal|spawn|unistd|sys/\w+)\.h"
C_STD = r"(assert|math|stdbool|stddef|stdint|stdio|stdlib|string)\.h"
HOST = r"(fmt/\w+\.h|nlohmann/json(_fwd)?\.hpp)"

# folder -> (quoted includes, angle includes besides the C++ standard library), as full-match patterns.
TABLE = {
    "include": (r"attnforge/\w+\.h", C_STD),
    "generator": (r"(attnforge|generator)/.*|templates/shape\.h", r"fmt/\w+\.h|xxhash\.h"),
    "reference": (r"(attnforge|reference)/.*", r"fmt/\w+\.h|sched\.h"),
    "device": (r"base\.cuh|shape\.h|low_bits\.h|base_params\.h|(ptx|tile|pieces|hopper|backward|ladder|oracle)/\w+\.(cuh|h)|parts/\w+/\w+\.(cuh|h)", None),  # and the own folder; not even std
    "templates": (
        r"(attnforge|generator)/.*|templates/(registry|embedded|base_params|(host|hopper|backward|ladder)/\w+|parts/\w+/(host|params))\.h|templates/base\.cuh",  # and the own folder
        r"fmt/\w+\.h",
    ),
    "runtime": (
        r"(attnforge|generator|runtime)/.*|templates/base_params\.h",
        rf"{POSIX}|{HOST}|cuda\.h|cudaTypedefs\.h|nvrtc\.h|nvtx3/\w+\.h",
    ),
    "cache": (r"(attnforge|generator|cache)/.*", rf"{POSIX}|{HOST}|sqlite3\.h|zstd\.h|xxhash\.h"),
    "tuner/search": (r"(attnforge|generator|cache|tuner/search)/.*|tuner/evaluate\.h|templates/registry\.h", HOST),
    "tuner": (
        r"(attnforge|generator|runtime|reference|cache|tuner)/.*|templates/(registry|oracle/(fwd|bwd)_naive/oracle)\.h",
        rf"{POSIX}|{HOST}|cuda\.h",
    ),
    "plan": (
        r"(attnforge|generator|runtime|reference|cache|tuner)/.*|plan/((c|ops|checks|choice)/)?\w+\.h|templates/(registry|embedded|ops/(block_lists|clear_rest|weights)/host)\.h",
        rf"{POSIX}|{HOST}|cuda\.h",
    ),
    "plan/tools": (
        r"(attnforge|generator|runtime|reference|cache|tuner|plan)/.*|templates/(registry|embedded|ops/(block_lists|clear_rest|weights)/host)\.h",
        rf"{POSIX}|{HOST}|cuda\.h",
    ),
    "python": (r"\w+\.h", POSIX),
    "cli": (r"(attnforge|cli)/.*", rf"{POSIX}|{HOST}|CLI/\w+\.hpp|sched\.h|mpi\.h"),
    "bench": (
        r"(attnforge|generator|runtime|bench)/.*|templates/(registry|host/fitted_model)\.h",
        rf"{POSIX}|{HOST}|benchmark/benchmark\.h|cuda\.h",
    ),
}
CPP_STD = re.compile(r"[a-z_0-9]+")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".cuh", ".cpp", ".c", ".cu"}


def row_of(path):
    """The row of TABLE that a path (relative to the root) falls under."""
    parts = path.parts
    if parts[0] != "templates":
        own = "/".join(parts[:2])
        return own if own in TABLE else parts[0]
    device = path.suffix == ".cuh" or path.name in ("config.h", "shape.h", "low_bits.h") or path.name in ("params.h", "base_params.h")
    return "device" if device else "templates"


def refusal(path, kind, target):
    """Why `path` may not include `target` (kind is '<' or '\"'), or "" if it may."""
    row = row_of(path)
    quoted, angle = TABLE[row]
    if kind == "<":
        if angle is None:
            return "device code includes nothing of the host or the toolkit"
        if CPP_STD.fullmatch(target) or re.fullmatch(angle, target):
            return ""
        return f"not among the system headers of {row}"
    if re.fullmatch(quoted, target):
        return ""
    if path.parts[0] == "templates" and len(path.parts) > 2:
        own = "/".join(path.parts[1:-1])
        if target.startswith((f"{own}/", f"templates/{own}/")):
            return ""
    return f"not in the row of {row}"


def check(root):
    broken, lines = [], 0
    for folder in sorted({"templates"} | {row for row in TABLE if "/" not in row and row != "device"}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root)
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                lines += 1
                reason = refusal(path, *match.groups())
                if reason:
                    broken.append(f"{path}:{number}: {line.strip()}  ({reason})")
    print("\n".join(broken))
    print(f"{lines} #include lines, {len(broken)} break the table")
    return lines > 0 and not broken


def self_test():
    cases = [
        ("generator/a.cpp", '"', "generator/arch.h", True),
        ("generator/a.cpp", '"', "runtime/driver.h", False),
        ("generator/a.cpp", '"', "templates/registry.h", False),
        ("generator/a.cpp", '"', "templates/shape.h", True),
        ("generator/a.cpp", "<", "cuda.h", False),
        ("generator/a.cpp", "<", "vector", True),
        ("include/attnforge/a.h", '"', "generator/arch.h", False),
        ("include/attnforge/a.h", "<", "fmt/format.h", False),
        ("reference/a.cpp", '"', "generator/arch.h", False),
        ("templates/f/kernel.cuh", '"', "tile/softmax.cuh", True),
        ("templates/f/kernel.cuh", '"', "f/config.h", True),
        ("templates/f/kernel.cuh", '"', "g/config.h", False),
        ("templates/f/kernel.cuh", "<", "cstdint", False),
        ("templates/f/kernel.cuh", "<", "cuda_bf16.h", False),
        ("templates/f/config.h", '"', "generator/config.h", False),
        ("templates/f/config.h", '"', "shape.h", True),
        ("templates/shape.h", "<", "cstdint", False),
        ("templates/f/family.cpp", '"', "generator/family.h", True),
        ("templates/f/family.cpp", '"', "templates/f/config.h", True),
        ("templates/f/family.cpp", '"', "templates/g/config.h", False),
        ("templates/f/family.cpp", '"', "runtime/kernel.h", False),
        ("templates/ladder/f/family.cpp", '"', "templates/ladder/f/config.h", True),
        ("templates/ladder/f/family.cpp", '"', "templates/ladder/g/config.h", False),
        ("templates/ladder/f/family.cpp", '"', "templates/host/fwd_params.h", True),
        ("templates/ladder/f/kernel.cuh", '"', "host/fwd_params.h", False),
        ("runtime/a.cpp", '"', "templates/registry.h", False),
        ("runtime/a.cpp", '"', "templates/base_params.h", True),
        ("runtime/a.cpp", '"', "templates/host/fwd_params.h", False),
        ("runtime/a.cpp", "<", "cuda.h", True),
        ("cache/a.cpp", '"', "tuner/search/choices.h", False),
        ("cache/a.cpp", "<", "sqlite3.h", True),
        ("tuner/a.cpp", '"', "plan/plan_state.h", False),
        ("tuner/a.cpp", '"', "templates/oracle/fwd_naive/oracle.h", True),
        ("tuner/a.cpp", '"', "templates/oracle/fwd_naive/config.h", False),
        ("tuner/a.cpp", "<", "sqlite3.h", False),
        ("tuner/search/a.cpp", '"', "tuner/evaluate.h", True),
        ("tuner/search/a.cpp", '"', "tuner/timer.h", False),
        ("tuner/search/a.cpp", '"', "runtime/kernel.h", False),
        ("plan/a.cpp", '"', "tuner/search/tune.h", True),
        ("plan/a.cpp", '"', "plan/tools/compile_info.h", False),
        ("plan/tools/a.cpp", '"', "plan/choice/choice.h", True),
        ("plan/a.cpp", '"', "cli/verbs/verbs.h", False),
        ("cli/a.cpp", '"', "cache/cache.h", False),
        ("bench/a.cpp", '"', "cache/cache.h", False),
    ]
    wrong = 0
    for path, kind, target, allowed in cases:
        if (refusal(pathlib.PurePosixPath(path), kind, target) == "") != allowed:
            print(f"{path} including {target}: expected {'allowed' if allowed else 'refused'}")
            wrong += 1
    print(f"{len(cases)} cases, {wrong} wrong")
    return wrong == 0


if __name__ == "__main__":
    ok = self_test() if sys.argv[1:] == ["--self-test"] else check(pathlib.Path(sys.argv[1]))
    sys.exit(0 if ok else 1)
