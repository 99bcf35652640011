"""What the scripts of this folder need of a machine. What is missing ends them with one line."""

import csv
import pathlib
import shlex
import shutil
import subprocess
import sys


def gpu():
    """"NVIDIA H200, 580.159.04": name and driver of the first GPU."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which(query[0]) is None:
        sys.exit("there is no nvidia-smi here: this needs a machine with an NVIDIA GPU")
    done = subprocess.run(query, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"nvidia-smi failed: {(done.stdout + done.stderr).strip()}")
    return done.stdout.split("\n")[0]


def command():
    """"python3 bench/NAME.py ...": what runs, as it can be typed again."""
    return f"python3 bench/{shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])}"


def table(path, columns, about):
    """(file, csv.writer) of a path, else of standard output, that begins with what it was measured on, and the command."""
    file = open(path, "w", newline="") if path else sys.stdout
    file.write(f"# {about}\n# {command()}\n")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    return file, rows


def torch_and_versions():
    """"NVIDIA H200, torch 2.11, attnforge 0.1.0": of the GPU that torch runs on."""
    import attnforge
    import torch

    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, attnforge {attnforge.version()}"


def program(path):
    """Its absolute path."""
    path = pathlib.Path(path).resolve()
    if not path.is_file():
        sys.exit(f"{path} is not there; ./dev build makes it in build/release/bin")
    return str(path)


def torch():
    """The module."""
    try:
        import torch as module
    except ImportError:
        sys.exit(f"{sys.executable} has no torch, which this needs")
    if not module.cuda.is_available():
        sys.exit("torch finds no GPU here")
    return module
