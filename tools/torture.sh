#!/usr/bin/env bash
# torture.sh - what ./dev torture runs: fuzzers and loops that kill, damage and crowd, each for some minutes, each with a line
# of counts at its end. Exit status 0 only if every promise held.
#   torture.sh BUILD_FOLDER [--minutes N] [--seed X] [NAME...]     NAME: fuzz, fuzz_<target>, kill, flip, processes,
#                                                                  tuning, first_run, problems, user_code; all of them if none is given
set -euo pipefail

build=$(readlink -f "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
shift
minutes=1
seed=$(date +%s)
names=()
while (($#)); do
  case $1 in
    --minutes | --seed)
      [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "torture: $1 needs a number, not '${2:-}'" >&2; exit 2; }
      [[ $1 == --minutes ]] && minutes=$2 || seed=$2
      shift 2
      ;;
    -*) echo "torture: unknown option $1" >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
  esac
done
((${#names[@]})) || names=(fuzz kill flip processes tuning first_run problems user_code)
seconds=$(awk -v minutes="$minutes" 'BEGIN {print minutes * 60}')

has_gpu() { command -v nvidia-smi > /dev/null && nvidia-smi -L 2> /dev/null | grep -q '^GPU'; }

# A failing fuzzer leaves its input here.
mkdir -p "$build/torture"
cd "$build/torture"
failed=() left_out=() ran=()

run() {
  local status=0
  "$build/bin/$1" "${@:2}" || status=$?
  case $status in
    0) ran+=("$1") ;;
    77) left_out+=("$1") ;;
    *) failed+=("$1 (exit status $status)") ;;
  esac
}

# Real processes with policy first_run: on the GPU, else on the fake one, whose launches and compiles sleep.
first_run() {
  local program=first_run_processes options=() before=() fake=$build/tests/support/fake_driver
  [[ -x $build/bin/$program ]] || { left_out+=("$program (not built)"); return; }
  if ! has_gpu; then
    before=(env "LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "ATTNFORGE_NVRTC=$fake/libfake_nvrtc.so"
      FAKE_GPU_LAUNCH_US=500 FAKE_NVRTC_COMPILE_MS=60)
    options=(--limit 4 --slack 0.5)
  fi
  local rounds words
  rounds=$(awk -v seconds="$seconds" 'BEGIN {print int(seconds / 60) + 1}')
  for words in "--processes 8" "--processes 16" "--processes 32" "--processes 8 --kill-holder"; do
    # shellcheck disable=SC2086
    if "${before[@]}" "$build/bin/$program" $words --rounds "$rounds" --together "${options[@]}"; then
      ran+=("$program $words")
    else
      failed+=("$program $words")
    fi
  done
}

# Searches, workers and, where mpirun is, processes of jobs are killed on the fake GPU.
tuning() {
  local fake=$build/tests/support/fake_driver job=()
  [[ -x $build/bin/attnforge_mpi ]] && command -v mpirun > /dev/null && job=(--mpi "$build/bin/attnforge_mpi")
  if python3 "$root/tests/torture/tuning.py" "$build/bin/attnforge" "$fake" "$fake/libfake_nvrtc.so" "${job[@]}" --seconds "$seconds" --seed "$seed"; then
    ran+=(tuning)
  else
    failed+=("tuning (exit status $?)")
  fi
}

for name in "${names[@]}"; do
  case $name in
    fuzz)
      for program in "$build"/bin/fuzz_*; do run "${program##*/}" --seconds "$seconds" --seed "$seed"; done
      ;;
    fuzz_* | torture_*) run "$name" --seconds "$seconds" --seed "$seed" ;;
    kill | flip | processes) run "torture_$name" --seconds "$seconds" --seed "$seed" ;;
    first_run) first_run ;;
    tuning) tuning ;;
    problems | user_code) run "torture_$name" --seconds "$seconds" --seed "$seed" ;;
    *) echo "torture: no such part: $name; there are fuzz, fuzz_<target>, kill, flip, processes, tuning, first_run, problems, user_code" >&2; exit 2 ;;
  esac
done

((${#left_out[@]} == 0)) || printf 'torture: left out: %s\n' "${left_out[@]}"
if ((${#failed[@]})); then
  printf 'torture: FAILED: %s\n' "${failed[@]}"
  echo "torture: inputs that fuzzers failed on are in $build/torture; run a fuzzer with the file's name"
  exit 1
fi
echo "torture: every promise held in ${#ran[@]} runs of $minutes minutes, seed $seed"
