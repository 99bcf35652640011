#!/usr/bin/env python3
"""Times `./dev demo` in a fresh copy of the tree, without ccache: by the wall clock, step by step, and in CPU seconds.

usage: setup_time.py [--root FOLDER] [--out FILE.csv]
  --root   an empty system (debootstrap --variant=minbase bookworm FOLDER) in which it runs by chroot; needs root
  --out    where the rows go; those of the same system and state are replaced (default: bench/results/setup.csv)

A system is "bare" when it has no cmake before. CPU seconds are those of every process that demo started, packages' scripts too:
on a machine that does other work beside, they divided by the cores say more than the wall clock does.
"""
import argparse
import csv
import os
import pathlib
import platform
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = ["system", "state", "cores", "step", "wall_s", "cpu_s"]


def copy_tree(target):
    """What git knows or would add, as a clone has it."""
    files = "git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2> /dev/null"
    subprocess.run(f"{files} | tar -c -T - | tar -x -C {shlex.quote(str(target))}", shell=True, cwd=ROOT, check=True)


def name_of(root):
    """e.g. Debian GNU/Linux 12 (bookworm)"""
    text = (root / "etc/os-release").read_text()
    return re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE).group(1)


def run_demo(folder, root):
    """(exit code, [(step, wall seconds)]) of demo; its output goes on to ours."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                   "CCACHE_DISABLE": "1", "TERM": "dumb"}
    environment.update({name: os.environ[name] for name in ("ATTNFORGE_DEV_WHEELS", "JOBS") if name in os.environ})
    command = ["./dev", "demo"]
    if root != pathlib.Path("/"):
        inside = "/" + str(folder.relative_to(root))
        command = ["chroot", str(root), "/bin/bash", "-c", f"cd {inside} && ./dev demo"]
    demo = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    steps, began = [], time.monotonic()
    for line in demo.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        heading = re.match(r"(?:\x1b\[1m)?== (.*?)(?:\x1b\[0m)?$", line.rstrip())
        if heading:
            now = time.monotonic()
            if steps:
                steps[-1][1] = now - began
            steps.append([re.split(r"[:;,]| in \d", heading.group(1))[0], 0.0])
            began = now
    return demo.wait(), [step for step in steps if step[1] > 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/setup.csv")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    state = "packages present" if (root / "usr/bin/cmake").exists() else "bare"
    with tempfile.TemporaryDirectory(dir=root / "tmp", prefix="attnforge_setup_") as name:
        folder = pathlib.Path(name)
        copy_tree(folder)
        began = time.monotonic()
        code, steps = run_demo(folder, root)
        wall = time.monotonic() - began
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        if code != 0:
            log = folder / "build/setup.log"
            if log.exists():
                sys.stderr.write(log.read_text()[-4000:])
            return f"setup_time.py: demo ended with {code}"
    same = {"system": name_of(root), "state": state, "cores": str(len(os.sched_getaffinity(0)))}
    rows = [{**same, "step": step, "wall_s": f"{seconds:.1f}", "cpu_s": ""} for step, seconds in steps]
    rows.append({**same, "step": "all", "wall_s": f"{wall:.1f}", "cpu_s": f"{usage.ru_utime + usage.ru_stime:.1f}"})
    kept = []
    if arguments.out.exists():
        with arguments.out.open() as file:
            lines = [line for line in file if not line.startswith("#")]
        kept = [row for row in csv.DictReader(lines) if any(row[key] != same[key] for key in same)]
    with arguments.out.open("w", newline="") as file:
        file.write(f"# {platform.machine()}, no ccache\n# python3 bench/setup_time.py, with --root for an empty system\n")
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept + rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
