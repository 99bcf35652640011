"""Times two builds of attnforge by turns on the points of a stored run, each at its stored config: what a change of the kernels'
structure costs or gains.

    python3 bench/before_after.py OLD/attnforge NEW/attnforge --rounds 5 --out before_after.csv
    python3 bench/before_after.py OLD NEW --points bench/results/h200/hopper_fp16.csv --limit-s 300
    python3 bench/before_after.py OLD NEW --points bench/results/h200/backward.csv --only bwd_wgmma --most 99 --out before_after.csv

Every round times each point once with both, in turns; a point's time is the median over the rounds. Compiles come first and are
not timed. Ends after the round in which --limit-s has passed. The card is not heated: where kernels are at its power limit, as backward
passes of 2048 tokens and more are, two that are as fast here can differ by 5% in bench/backward.py, which heats it.
"""

import argparse
import concurrent.futures
import pathlib
import statistics
import sys
import tempfile
import time

import figures
import machine


def points(path, only, most):
    """{problem: config} of the rows that a config of attnforge's with `only` in it was stored for."""
    try:
        rows = figures.read_csv(path)[1]
    except OSError as error:
        sys.exit(f"{path} cannot be read: {error.strerror}")
    found = {}
    for row in rows:
        if row.get("impl") == "attnforge" and row.get("config") and only in row["config"]:
            found.setdefault(figures.problem_of(row), row["config"])
    if not found:
        wanted = f" with {only} in it" if only else ""
        sys.exit(f"{path} has no row of attnforge with a config{wanted}; give a file that bench/peers.py or bench/backward.py wrote")
    return dict(list(found.items())[:most])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=machine.program)
    parser.add_argument("new", type=machine.program)
    parser.add_argument("--points", default=figures.RESULTS / "h200/hopper.csv", help="rows with configs")
    parser.add_argument("--only", default="", metavar="WORDS", help="only rows with these words in their config, as bwd_wgmma")
    parser.add_argument("--most", type=machine.positive, default=36, help="points taken, from the first on")
    parser.add_argument("--rounds", type=machine.positive, default=5)
    parser.add_argument("--limit-s", type=float, default=600)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    programs = arguments.old, arguments.new
    if arguments.old == arguments.new:
        parser.error(f"OLD and NEW are the same program, {arguments.old}")
    chosen = points(arguments.points, arguments.only, arguments.most)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:

        def timed(program, problem, config, *options):
            cache = pathlib.Path(folder) / f"{programs.index(program)}.db"
            return machine.answer(program, "bench", problem, "--config", config, "--json", "-q", *options, cache=cache)

        jobs = [(program, *point) for point in chosen.items() for program in programs]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            first = list(pool.map(lambda job: timed(*job, "--samples", "3", "--max-samples", "3"), jobs))[0]
        print(f"compiled {len(chosen)} points in {time.monotonic() - began:.0f} s", flush=True)
        samples = {(problem, program): [] for problem in chosen for program in programs}
        for turn in range(arguments.rounds):
            for at, (problem, config) in enumerate(chosen.items()):
                for program in programs if (at + turn) % 2 else programs[::-1]:
                    said = timed(program, problem, config, "--seconds", "0.2", "--samples", "15", "--max-samples", "40")
                    samples[problem, program].append(said["results"][0]["time_us"])
            print(f"round {turn + 1} of {arguments.rounds}, {time.monotonic() - began:.0f} s", flush=True)
            if time.monotonic() - began > arguments.limit_s:
                break
    ratios = []
    columns = "problem,before_us,after_us,ratio,rounds".split(",")
    _, table = machine.table(arguments.out, columns, f"{first['device']['name']}, {first['date'][:10]}")
    for problem in chosen:
        before, after = (statistics.median(samples[problem, program]) for program in programs)
        ratios.append(before / after)
        table.writerow([problem, f"{before:.2f}", f"{after:.2f}", f"{before / after:.4f}", turn + 1])
    print(f"{len(ratios)} points, before / after: geometric mean {statistics.geometric_mean(ratios):.4f}, "
          f"least {min(ratios):.4f}, most {max(ratios):.4f}")


if __name__ == "__main__":
    main()
