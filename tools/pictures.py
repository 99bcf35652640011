#!/usr/bin/env python3
"""Draws docs/pictures from the numbers in bench/results, by the program's own commands.

usage: pictures.py [--check] PROGRAM
  --check   draws nothing and needs no gnuplot: says which pictures are not of these numbers, or were drawn in another way

Each picture ends with a comment: a digest of the data and the script that gnuplot was given.
"""
import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
RESULTS = ROOT / "bench/results/h200"

# Picture: the numbers that it shows, the figure of the command that it is (its name, and where there are several, how the line below its
# title begins), and the axes if the numbers are tries of a search as `attnforge cache export` writes them.
SHOWN = {
    "latency": ("sweep.csv", "latency", None),
    "throughput": ("sweep.csv", "throughput", None),
    "memory": ("sweep.csv", "memory", None),
    "padding_waste": ("head_dims.csv", "padding_waste", None),
    "peers": ("hopper.csv", "throughput fwd bf16 num_heads=16 causal head_dim=128,", None),
    "landscape": ("landscape.jsonl", "landscape_fwd_mma_sm80", "block_n,step_n"),
}


def run(program, arguments, database, draw):
    environment = dict(os.environ, ATTNFORGE_CACHE=str(database))
    if not draw:
        environment["PATH"] = "/nowhere"  # then data and scripts alone are written
    done = subprocess.run([program, *map(str, arguments)], env=environment, capture_output=True, text=True)
    if done.returncode != 0 and (draw or "gnuplot" not in done.stderr):
        sys.exit(f"pictures.py: {' '.join(map(str, arguments))}: {done.stderr}")


def figure_of(folder, wanted):
    name, _, title = wanted.partition(" ")
    scripts = [path for path in sorted(folder.glob(f"{name}*.gp")) if f'set label 2 "{title}' in path.read_text()]
    if len(scripts) != 1:
        sys.exit(f"pictures.py: {len(scripts)} figures are '{wanted}'")
    return scripts[0].with_suffix("")


def write_figures(program, folder, draw):
    """{picture: path without its ending of the figure}."""
    figures = {}
    for picture, (numbers, figure, axes) in SHOWN.items():
        database = folder / f"{picture}.db"
        if axes:
            run(program, ["cache", "import", RESULTS / numbers], database, draw)
            run(program, ["cache", "plot", "--axes", axes, "--out", folder / numbers], database, draw)
        elif not (folder / numbers).exists():
            run(program, ["bench", "--from", RESULTS / numbers, "--plot", folder / numbers], database, draw)
        figures[picture] = figure_of(folder / numbers, figure)
    return figures


def digest(figure):
    text = b"".join(figure.with_name(f"{figure.name}.{ending}").read_bytes() for ending in ("dat", "gp"))
    return hashlib.sha256(text).hexdigest()[:16]


def drawn(picture):
    """The digest at the end of a picture, "" without one."""
    path = PICTURES / f"{picture}.svg"
    found = re.search(r"<!-- tools/pictures.py: ([0-9a-f]+) -->\s*$", path.read_text()) if path.exists() else None
    return found.group(1) if found else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("program")
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.program).resolve())
    with tempfile.TemporaryDirectory(prefix="attnforge_pictures_") as name:
        figures = write_figures(program, pathlib.Path(name), not arguments.check)
        old = [picture for picture, figure in figures.items() if drawn(picture) != digest(figure)]
        if arguments.check:
            old += [path.stem + " (unknown)" for path in PICTURES.iterdir() if path.stem not in SHOWN]
            if old:
                return f"docs/pictures is old: {', '.join(sorted(old))}; run python3 tools/pictures.py PROGRAM"
            print(f"{len(figures)} pictures are of the numbers in {RESULTS.relative_to(ROOT)}")
            return 0
        for picture in old:
            figure = figures[picture]
            svg = figure.with_name(f"{figure.name}.svg").read_text().rstrip()
            (PICTURES / f"{picture}.svg").write_text(f"{svg}\n<!-- tools/pictures.py: {digest(figure)} -->\n")
            print(f"drawn: docs/pictures/{picture}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
