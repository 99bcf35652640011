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
import csv
import pathlib
import shlex
import statistics
import sys
import tempfile
import time

import by_turns
import figures

HERE = pathlib.Path(__file__).resolve().parent


def problem_text(row):
    words = ["deterministic"] if row.get("list") == "deterministic" else []
    return figures.problem_text(figures.point_of(row), row["config"][:3], *words)


def points(path, only, most):
    """{problem: config} of the rows that a config of attnforge's with `only` in it was stored for."""
    try:
        rows = figures.read_csv(path)[1]
    except OSError as error:
        sys.exit(f"{path} cannot be read: {error.strerror}")
    found = {}
    for row in rows:
        if row.get("impl") == "attnforge" and row.get("config") and only in row["config"]:
            found.setdefault(problem_text(row), row["config"])
    if not found:
        wanted = f" with {only} in it" if only else ""
        sys.exit(f"{path} has no row of attnforge with a config{wanted}; give a file that bench/peers.py or bench/backward.py wrote")
    return dict(list(found.items())[:most])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=by_turns.program_named)
    parser.add_argument("new", type=by_turns.program_named)
    parser.add_argument("--points", type=pathlib.Path, default=HERE / "results/h200/hopper.csv", help="rows with configs")
    parser.add_argument("--only", default="", metavar="WORDS", help="only rows with these words in their config, as bwd_wgmma")
    parser.add_argument("--most", type=by_turns.positive, default=36, help="points taken, from the first on")
    parser.add_argument("--rounds", type=by_turns.positive, default=5)
    parser.add_argument("--limit-s", type=float, default=600)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if arguments.old == arguments.new:
        parser.error(f"OLD and NEW are the same program, {arguments.old}")
    chosen = points(arguments.points, arguments.only, arguments.most)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:

        def timed(program, problem, config, *options):
            try:
                return by_turns.bench(program, problem, config, pathlib.Path(folder) / f"{abs(hash(program))}.db", *options)
            except by_turns.Failed as error:
                sys.exit(str(error))

        jobs = [(program, *point) for point in chosen.items() for program in (arguments.old, arguments.new)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            first = list(pool.map(lambda job: timed(*job, "--samples", "3", "--max-samples", "3"), jobs))[0]
        print(f"compiled {len(chosen)} points in {time.monotonic() - began:.0f} s", flush=True)
        samples = {point: {arguments.old: [], arguments.new: []} for point in chosen}
        for turn in range(arguments.rounds):
            for at, (problem, config) in enumerate(chosen.items()):
                order = (arguments.old, arguments.new) if (at + turn) % 2 else (arguments.new, arguments.old)
                for program in order:
                    said = timed(program, problem, config, "--seconds", "0.2", "--samples", "15", "--max-samples", "40")
                    samples[problem][program].append(said["results"][0]["time_us"])
            print(f"round {turn + 1} of {arguments.rounds}, {time.monotonic() - began:.0f} s", flush=True)
            if time.monotonic() - began > arguments.limit_s:
                break
    ratios = []
    with arguments.out.open("w") as out:
        out.write(f"# {first['device']['name']}, {first['date'][:10]}; bench/before_after.py {shlex.join(sys.argv[1:])}\n")
        table = csv.writer(out, lineterminator="\n")
        table.writerow("problem,before_us,after_us,ratio,rounds".split(","))
        for problem, of in samples.items():
            before, after = (statistics.median(of[program]) for program in (arguments.old, arguments.new))
            ratios.append(before / after)
            table.writerow([problem, f"{before:.2f}", f"{after:.2f}", f"{before / after:.4f}", len(of[arguments.old])])
    print(f"{len(ratios)} points, before / after: geometric mean {statistics.geometric_mean(ratios):.4f}, "
          f"least {min(ratios):.4f}, most {max(ratios):.4f}")


if __name__ == "__main__":
    main()
