#!/usr/bin/env python3
"""Times `./dev demo` in a fresh copy of the tree, without ccache: by the wall clock, step by step, and in CPU seconds.

    python3 bench/setup_time.py --root FOLDER    # an empty system, as debootstrap --variant=minbase bookworm FOLDER makes it; needs root

Rows of the same system and state are replaced. A system is "bare" when it has no cmake before. CPU seconds are those of every process that demo started, packages' scripts too:
on a machine that does other work beside, they divided by the cores say more than the wall clock does.
"""
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

import figures
import machine

FIELDS = ["system", "state", "cores", "step", "wall_s", "cpu_s"]


def copy_tree(target):
    """What git knows or would add, as a clone has it."""
    files = "git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2> /dev/null"
    subprocess.run(f"{files} | tar -c -T - | tar -x -C {shlex.quote(str(target))}", shell=True, cwd=machine.ROOT, check=True)


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
    parser = machine.options(__doc__, out=figures.RESULTS / "setup.csv")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"), help="of a system in which it runs by chroot")
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
    same = [name_of(root), state, str(len(os.sched_getaffinity(0)))]
    rows = [[*same, step, f"{seconds:.1f}", ""] for step, seconds in steps]
    rows.append([*same, "all", f"{wall:.1f}", f"{usage.ru_utime + usage.ru_stime:.1f}"])
    stored = figures.read_csv(arguments.out)[1] if pathlib.Path(arguments.out).exists() else []
    kept = [row for row in (list(each.values()) for each in stored) if row[:3] != same]
    machine.table(arguments.out, FIELDS, f"{platform.machine()}, no ccache")[1].writerows(kept + rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
