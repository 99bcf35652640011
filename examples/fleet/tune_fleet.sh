#!/usr/bin/env bash
# tune_fleet.sh - tune on one machine, use its winners on all others with the same GPU.
#
#   ./tune_fleet.sh tune                       # here: minutes a problem, and winners.jsonl
#   for host in gpu01 gpu02; do                # ship
#     scp tune_fleet.sh problems.txt winners.jsonl "$host": && ssh "$host" ./tune_fleet.sh take
#   done
#
# `take` measures nothing: it imports the winners, compiles each once (half a second), and checks that
# every problem is ready for programs that must not wait: policy="cached_only" in Python,
# Policy::kCachedOnly in C++, ATTNFORGE_POLICY_CACHED_ONLY in C. They get a kernel at once, or an
# error that names the problem to add to problems.txt.
#
# Winners belong to a GPU model; tune once for each. Where the others have no NVRTC, ship the
# database itself in place of the winners: it holds the machine code (`attnforge doctor` has its path).
set -euo pipefail
cd "$(dirname "$0")"
attnforge=${ATTNFORGE:-attnforge}
problems=${PROBLEMS:-problems.txt}
winners=${WINNERS:-winners.jsonl}
rigor=${RIGOR:-full} # quick: seconds a problem

tune() {
  "$attnforge" tune --quiet --rigor "$rigor" --file "$problems"
  "$attnforge" cache export "$winners"
}

take() {
  "$attnforge" cache import "$winners"
  # Answers from the database, since a search of this rigor is there, and compiles what is missing.
  "$attnforge" tune --quiet --rigor "$rigor" --file "$problems" > /dev/null
  check
}

# A run of each problem that may neither compile nor measure, on random tensors.
check() {
  local problem ready=0
  while read -r problem; do
    [[ -z $problem || $problem == \#* ]] && continue
    "$attnforge" run --policy cached_only --random 1 --repeat 1 "$problem" > /dev/null
    ready=$((ready + 1))
  done < "$problems"
  echo "$ready problems are ready for cached_only"
}

case ${1:-} in
  tune | take | check) "$1" ;;
  *)
    echo "usage: tune_fleet.sh tune|take|check" >&2
    exit 2
    ;;
esac
