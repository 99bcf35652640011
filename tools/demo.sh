#!/usr/bin/env bash
# demo.sh - the main job on a Llama-3-8B prefill. Called by `./dev demo`. With a GPU: tune, find the winner in a second process,
# run it on .npy files, compare speeds. Without: compile and rank for GPUs that are not here, run the CPU reference, draw the page of the problem.
# usage: demo.sh ATTNFORGE gpu|cpu
set -euo pipefail
readonly attnforge=$1 machine=$2
readonly page=${attnforge%/bin/*}/demo.html
readonly problem="fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ATTNFORGE_CACHE=$folder/demo.db # of its own: each demo shows the whole way

heading() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() { # prints the command, then runs it
  printf '$ attnforge %s\n' "$*"
  "$attnforge" "$@"
}

random_file() { # NAME SEED HEADS; each query sees one key alone: o is v
  "$attnforge" run --cpu --random "$2" --o "$folder/$1.npy" --bf16 fwd bf16 num_heads="$3" seqlen=4096 head_dim=128 causal window_left=0 > /dev/null
}

demo_gpu() {
  heading "1. Tune: $problem"
  show tune $problem

  heading "2. Another process finds the winner in the database"
  show cache ls
  show run --random 1 --policy cached_only $problem

  heading "3. Run it on .npy files and compare with attention in fp64 on the CPU"
  random_file q 1 32
  random_file k 2 8
  random_file v 3 8
  show run --q "$folder/q.npy" --k "$folder/k.npy" --v "$folder/v.npy" --o "$folder/o.npy" --bf16 causal --check

  heading "4. Against fwd_naive, and against the choice of an untuned library (an empty database)"
  show bench $problem
  show bench --families fwd_naive $problem
  show bench --cache :memory: $problem
}

demo_cpu() {
  heading "1. No GPU here: candidates for sm_86, sm_89 and sm_90a compiled by NVRTC and ranked by the model: the best three of each"
  show tune --quiet --arch sm_86,sm_89,sm_90a --candidates 3 $problem

  heading "2. The CPU reference on a smaller problem"
  show run --cpu --random 1 --check fwd bf16 num_heads=8:2 seqlen=512 head_dim=128 causal lse

  heading "3. What the problem becomes on an H200: a page with its candidates, source, machine code, launch and roofline"
  show inspect --arch sm_90a --html "$page" $problem
  printf 'Open %s in a browser.\n' "$page"
}

"demo_$machine"
