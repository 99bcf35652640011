#!/usr/bin/env bash
# with_torch.sh - runs a Python program that needs torch: with the given python where that has it, else with the environment
# that --make makes of torch_requirements.txt in ${XDG_CACHE_HOME:-~/.cache}/attnforge. Where there is neither, it ends with
# 77, which ctest takes for skipped.
#   with_torch.sh PYTHON PROGRAM [ARGS...]
#   with_torch.sh --find PYTHON      prints which python that is, or nothing and 77
#   with_torch.sh --make PYTHON      makes the environment; not again, and not half
set -euo pipefail

requirements=$(dirname "$(readlink -f "$0")")/torch_requirements.txt
readonly cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/attnforge

has_torch() { "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; }

# Of this Python and these requirements.
environment() {
  local which
  which=$({ "$1" --version && cat "$requirements"; } | sha256sum)
  printf '%s/torch-%s' "$cache" "${which:0:12}"
}

find_python() {
  local made
  if has_torch "$1"; then
    echo "$1"
    return
  fi
  made=$(environment "$1")/bin/python3
  [[ -x $made ]] || return 77
  echo "$made"
}

# Whoever is killed leaves a .part, which the next one removes: its own processes hold the lock as long as they write there.
make_environment() {
  local folder
  folder=$(environment "$1")
  (umask 077 && mkdir -p "$cache") # where the database is, which nobody else may write to
  exec 9> "$cache/torch.lock"
  flock 9
  [[ ! -d $folder ]] || return 0
  rm -rf "$cache"/torch-*.part
  "$1" -m venv "$folder.part"
  "$folder.part/bin/python3" -m pip install --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
    -r "$requirements"
  "$folder.part/bin/python3" -c 'import torch'
  mv -T "$folder.part" "$folder"
}

case ${1:-} in
  --find) find_python "$2" ;;
  --make) make_environment "$2" ;;
  *)
    python=$(find_python "$1") || {
      echo "${2##*/}: skipped: $1 has no torch; ./dev torch makes an environment that has it, for tests alone"
      exit 77
    }
    exec "$python" "${@:2}"
    ;;
esac
