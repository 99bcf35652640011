"""How good a first run's tuning is: within its default limit, against every config of the pruned space.

    python3 bench/first_run.py --attnforge build/release/bin/attnforge --out bench/results/h200/first_run.csv

Each problem is tuned twice in fresh databases: as the first call of a program does (8 s at most), and exhaustively. Then the
two winners and the untuned choice are timed in turn, several rounds each.
"""

import statistics
import sys
import tempfile

import machine

PROBLEMS = (
    "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal",
    "fwd bf16 batch=8 num_heads=32 seqlen=2048 head_dim=64 lse",
    "fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=256 causal lse",
    "fwd bf16 batch=4 num_heads=25 seqlen=4096 head_dim=80 lse",
    "fwd bf16 batch=2 num_heads=64:8 seqlen=4096 head_dim=64 causal window_left=127",
)
DEFAULT_LIMIT_S = 8
ROUNDS = 5
COLUMNS = (
    "problem,space,first_run_s,first_run_tried,exhaustive_s,first_run_us,best_us,untuned_us,loss,gain,first_run_config,best_config"
).split(",")


def main():
    args = machine.options(__doc__, runs_program=True).parse_args()
    program = machine.program(args.attnforge)
    file, out = machine.table(args.out, COLUMNS, machine.gpu())
    for problem in PROBLEMS:
        with tempfile.TemporaryDirectory() as folder:
            caches = f"{folder}/first.db", f"{folder}/all.db"
            limits = ("--time-limit", str(DEFAULT_LIMIT_S)), ("--rigor", "exhaustive")
            first, every = (
                machine.answer(program, "tune", problem, "--quiet", "--json", *limit, cache=cache)["results"][0]
                for cache, limit in zip(caches, limits)
            )
            configs = first["winner"], every["winner"], first["untuned"]
            times = {config: [] for config in configs}  # the same config twice would only show the noise
            for _ in range(ROUNDS):
                for config, samples in times.items():
                    said = machine.answer(program, "bench", problem, "--config", config, "--seconds", "0.5", "--json", cache=caches[1])
                    samples.append(said["results"][0]["time_us"])
            ours, best, untuned = (statistics.median(times[config]) for config in configs)
            best = min(best, ours)
        row = [problem, every["space"], f"{first['elapsed_s']:.2f}", first["tried"], f"{every['elapsed_s']:.1f}"]
        row += [f"{us:.2f}" for us in (ours, best, untuned)]
        out.writerow(row + [f"{ours / best - 1:.4f}", f"{untuned / ours:.4f}", first["winner"], every["winner"]])
        file.flush()
        print(f"{problem}: {first['elapsed_s']:.1f} s, {ours / best - 1:.1%} slower than the best of {every['space']}", file=sys.stderr)


if __name__ == "__main__":
    main()
