"""What a search costs and how good its winner is, by the program.

    python3 bench/tuning.py first_run --out bench/results/h200/first_run.csv
    python3 bench/tuning.py fleet --count 100 --seed 1 --gpus 0,all --out bench/results/h200/fleet.csv
    python3 bench/tuning.py twice --count 40 --seed 2 --gpus 0 --out bench/results/h200/tuned_twice.csv
    python3 bench/tuning.py problems --count 100 --seed 1      # the drawn problems, a line each; needs no GPU

first_run: problems tuned twice in fresh databases, as the first call of a program does (8 s at most), and exhaustively; then the two winners
and the untuned choice are timed by turns. fleet: how long `attnforge tune --rigor quick` takes for drawn serving shapes (two decode steps to
each layer of a prompt), on each of --gpus. twice: as many drawn shapes, each tuned in two fresh databases with other seeds; where the winners
differ, both are timed by turns, at the sizes that searches measure (those of the bucket). Seconds of a search contain what it waits for the
other one on its GPU.
"""

import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time

import drawn_problems
import machine

PROBLEMS = (
    "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal",
    "fwd bf16 batch=8 num_heads=32 seqlen=2048 head_dim=64 lse",
    "fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=256 causal lse",
    "fwd bf16 batch=4 num_heads=25 seqlen=4096 head_dim=80 lse",
    "fwd bf16 batch=2 num_heads=64:8 seqlen=4096 head_dim=64 causal window_left=127",
)
DEFAULT_LIMIT_S = 8
COLUMNS = {
    "first_run": "problem,space,first_run_s,first_run_tried,exhaustive_s,first_run_us,best_us,untuned_us,loss,gain,first_run_config,best_config",
    "fleet": "gpus,cores,problems,seconds,tried",
    "twice": "problem,first_s,second_s,same,first_us,second_us,first_over_second,first,second",
}


def serving_shapes(seed, count):
    """Texts of problems: two drawn decode steps, then a layer of a prompt, and so on."""
    decode = drawn_problems.decode(seed, count)
    prompts = (point for point in drawn_problems.dense("forward", seed, 2 * count) if point.causal)
    turns = itertools.cycle((decode, decode, prompts))
    return [drawn_problems.text_of(next(turn)) for turn in itertools.islice(turns, count)]


def times_us(program, problem, configs, cache, rounds=5, seconds="0.5"):
    """Medians of rounds in which each config has its turn."""
    times = {config: [] for config in configs}  # the same config twice would only show the noise
    for _ in range(rounds if len(times) > 1 else 1):
        for config, samples in times.items():
            said = machine.answer(program, "bench", problem, "--config", config, "--seconds", seconds, "--json", cache=cache)
            samples.append(said["results"][0]["time_us"])
    return [statistics.median(times[config]) for config in configs]


def first_run(program, args):
    for problem in PROBLEMS:
        with tempfile.TemporaryDirectory() as folder:
            caches = f"{folder}/first.db", f"{folder}/all.db"
            limits = ("--time-limit", str(DEFAULT_LIMIT_S)), ("--rigor", "exhaustive")
            first, every = (
                machine.answer(program, "tune", problem, "--quiet", "--json", *limit, cache=cache)["results"][0]
                for cache, limit in zip(caches, limits)
            )
            ours, best, untuned = times_us(program, problem, (first["winner"], every["winner"], first["untuned"]), caches[1])
        best = min(best, ours)
        yield [problem, every["space"], f"{first['elapsed_s']:.2f}", first["tried"], f"{every['elapsed_s']:.1f}"] + [
            *(f"{us:.2f}" for us in (ours, best, untuned)), f"{ours / best - 1:.4f}", f"{untuned / ours:.4f}", first["winner"], every["winner"]
        ]  # fmt: skip


def tuned(program, problems, folder, name, *options):
    """(results, seconds) of a search for each problem, in a fresh database."""
    listed = pathlib.Path(folder, f"{name}.txt")
    listed.write_text("".join(f"{problem}\n" for problem in problems))
    start = time.monotonic()
    command = "tune", "--file", str(listed), "--rigor", "quick", "--quiet", "--json", *options
    return machine.answer(program, *command, cache=f"{folder}/{name}.db")["results"], time.monotonic() - start


def fleet(program, args):
    problems = serving_shapes(args.seed, args.count)
    for gpus in args.gpus.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results, seconds = tuned(program, problems, folder, "fleet", "--gpu", gpus)
        used = {row["device"]["uuid"] for row in results}
        yield [len(used), len(os.sched_getaffinity(0)), len(problems), f"{seconds:.1f}", sum(row["tried"] for row in results)]


def twice(program, args):
    problems = serving_shapes(args.seed, args.count)
    gpu = "--gpu", args.gpus
    with tempfile.TemporaryDirectory() as folder:
        first, second = (tuned(program, problems, folder, name, "--seed", seed, *gpu)[0] for name, seed in (("one", "1"), ("two", "2")))
        for both in zip(first, second):
            problem, configs = both[0]["measured_as"], [row["winner"] for row in both]
            us = times_us(program, problem, configs, f"{folder}/one.db", rounds=3, seconds="0.3")
            yield [problem, *(f"{row['elapsed_s']:.2f}" for row in both), int(configs[0] == configs[1]), *(f"{each:.2f}" for each in us),
                   f"{us[0] / us[1]:.4f}", *configs]  # fmt: skip


def main():
    parser = machine.options(__doc__, runs_program=True)
    parser.add_argument("what", choices=[*COLUMNS, "problems"])
    parser.add_argument("--count", type=machine.positive, default=40, help="of drawn problems; default: 40")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn; default: 1")
    parser.add_argument("--gpus", default="0", help="CUDA numbers, or all; default: 0")
    args = parser.parse_args()
    if args.what == "problems":
        return print("\n".join(serving_shapes(args.seed, args.count)))
    program = machine.program(args.attnforge)
    file, out = machine.table(args.out, COLUMNS[args.what].split(","), machine.gpu())
    for row in {"first_run": first_run, "fleet": fleet, "twice": twice}[args.what](program, args):
        out.writerow(row)
        file.flush()
        print(*row[:10], file=sys.stderr)


if __name__ == "__main__":
    main()
