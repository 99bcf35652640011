"""Times designs by turns: several configs, and templates in place of the library's, on the same problems.

    python3 bench/designs.py designs.txt --out designs.csv
    python3 bench/designs.py designs.txt --out designs.csv --rounds 5 --limit-s 120 --program build/release/bin/attnforge

A line of designs.txt is words of problems, as `attnforge bench` takes them. The indented lines after it are its designs, each a name and a
config, of which the first is what the others are compared with; behind an @ is a folder of templates (ATTNFORGE_TEMPLATES) for it:

    bwd bf16 batch=4 num_heads=16 seqlen=1024,4096 head_dim=128 causal,full
      64 rows = bwd_wgmma_sm90a split_columns=0 ...
      64 rows, as before @ before = bwd_wgmma_sm90a split_columns=0 ...
      80 rows = bwd_wgmma_sm90a split_columns=0 ...

All are compiled first, and run once against the CPU's results with --check: what fails, or is wrong, is left out with its reason. Every
round times each that is left once, in shuffled order, on a cold L2. The file is written anew after each round, so nothing is lost where
--limit-s ends it.
"""

import argparse
import collections
import concurrent.futures
import csv
import pathlib
import random
import shlex
import statistics
import sys
import tempfile
import time

import by_turns

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = "problem,design,config,templates,time_us,least_us,rounds,first_over_this".split(",")

Design = collections.namedtuple("Design", "problems name config templates")


def parse(text):
    """The designs of a file. Raises SystemExit with the number of a line that is wrong."""
    designs, problems = [], None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].rstrip()
        if not words:
            continue
        if not words[0].isspace():
            problems = words
            continue
        name, equals, config = (part.strip() for part in words.partition(" = "))
        name, _, templates = (part.strip() for part in name.partition("@"))
        if problems is None or not equals or not name or " " not in config:
            raise SystemExit(f"line {number} is none of \"PROBLEM WORDS\", \"  NAME = CONFIG\", \"  NAME @ FOLDER = CONFIG\": {line.strip()}")
        if any(each.problems == problems and each.name == name for each in designs):
            raise SystemExit(f"line {number} names a design that its problems have already: {name}")
        designs.append(Design(problems, name, config, templates))
    if not designs:
        raise SystemExit("no line is a design")
    return designs


class Bench:
    """One attnforge, with a database for each folder of templates."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def place(self, design):
        """The database, which keeps what was compiled, and the environment."""
        environment = {"ATTNFORGE_TEMPLATES": str(pathlib.Path(design.templates).absolute())} if design.templates else {}
        return self.folder / f"{design.templates.replace('/', '_')}.db", environment

    def times(self, design, *options):
        """({problem: us}, all that is said)."""
        database, environment = self.place(design)
        said = by_turns.bench(self.program, design.problems, design.config, database, *options, environment=environment)
        return {row["problem"]: row["time_us"] for row in said["results"]}, said

    def prove(self, design, problem):
        """Raises Failed unless the design's results are right."""
        command = [self.program, "run", "--random", "1", "--check", "--config", design.config, problem]
        by_turns.answer(command, *self.place(design))


def in_parallel(work, items):
    """{item: what work(item) gave}; of those that failed the reason is printed."""
    found = {}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = {pool.submit(work, item): item for item in items}
        for done in concurrent.futures.as_completed(waiting):
            try:
                found[waiting[done]] = done.result()
            except by_turns.Failed as error:
                print(f"left out: {waiting[done].name}: {error}", file=sys.stderr, flush=True)
    return {item: found[item] for item in items if item in found}


def rows_of(samples):
    """Medians, problem by problem, and the first design's time over each's."""
    of_problem = collections.defaultdict(list)
    for design, problems in samples.items():
        for problem, times in problems.items():
            of_problem[problem].append((design, statistics.median(times), min(times), len(times)))
    return [
        [problem, design.name, design.config, design.templates, f"{time_us:.2f}", f"{least:.2f}", rounds, f"{of[0][1] / time_us:.4f}"]
        for problem, of in of_problem.items()
        for design, time_us, least, rounds in of
    ]


def write(path, about, rows):
    with path.open("w", newline="") as out:
        out.write(about)
        table = csv.writer(out, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("designs", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=by_turns.program_named, default=str(HERE.parent / "build/release/bin/attnforge"))
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True, help="first compare each with the CPU's results")
    parser.add_argument("--rounds", type=by_turns.positive, default=5)
    parser.add_argument("--limit-s", type=float, default=600, help="no round begins after it")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    arguments = parser.parse_args()
    try:
        designs = parse(arguments.designs.read_text())
    except OSError as error:
        sys.exit(f"{arguments.designs} cannot be read: {error.strerror}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.program, folder)
        first = in_parallel(lambda design: bench.times(design, "--samples", "1", "--max-samples", "1"), designs)
        if arguments.check:
            right = in_parallel(lambda design: [bench.prove(design, problem) for problem in first[design][0]], list(first))
            first = {design: said for design, said in first.items() if design in right}
        if not first:
            sys.exit("no design is left to be timed")
        print(f"{len(first)} of {len(designs)} designs in {time.monotonic() - began:.0f} s", flush=True)
        said = next(iter(first.values()))[1]
        about = f"# {said['device']['name']}, {said['date'][:10]}; python3 bench/designs.py {shlex.join(sys.argv[1:])}\n"
        samples = {design: {problem: [] for problem in times} for design, (times, _) in first.items()}
        order, shuffle = list(first), random.Random(arguments.seed)
        for turn in range(arguments.rounds):
            shuffle.shuffle(order)
            for design in order:
                for problem, time_us in bench.times(design, "--seconds", "0.2", "--samples", "15", "--max-samples", "40")[0].items():
                    samples[design][problem].append(time_us)
            rows = rows_of(samples)
            write(arguments.out, about, rows)
            print(f"round {turn + 1} of {arguments.rounds}, {time.monotonic() - began:.0f} s", flush=True)
            if time.monotonic() - began > arguments.limit_s:
                break
    for problem, name, _, _, time_us, _, _, ratio in rows:
        print(f"{problem}: {name}: {time_us} us, {ratio}x")


if __name__ == "__main__":
    try:
        main()
    except by_turns.Failed as error:
        sys.exit(str(error))
