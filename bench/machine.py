"""What the scripts of this folder need of a machine, and the file that they write. What is missing ends them with one line."""

import argparse
import csv
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def gpu():
    """"NVIDIA H200, 580.159.04": name and driver of the first GPU."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which(query[0]) is None:
        sys.exit("there is no nvidia-smi here: this needs a machine with an NVIDIA GPU")
    done = subprocess.run(query, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"nvidia-smi failed: {(done.stdout + done.stderr).strip()}")
    return done.stdout.split("\n")[0]


def cpu():
    return next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))


def command():
    """"python3 bench/NAME.py ...": what runs, as it can be typed again."""
    return f"python3 bench/{shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])}"


def regex(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text} is no regular expression: {error}") from None


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return int(text)


def options(doc, runs_program=False, out=None):
    """A parser with --out, and --attnforge for a script that runs the program; `doc` is the script's."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", default=out, help=f"CSV file; default: {out or 'standard output'}")
    if runs_program:
        parser.add_argument("--attnforge", default="build/release/bin/attnforge")
    return parser


def table(path, columns, *comments):
    """(file, csv.writer) of a path, else of standard output, that begins with what it was measured on, and the command."""
    file = open(path, "w", newline="") if path else sys.stdout
    for line in (comments[0], command(), *comments[1:]):
        file.write(f"# {line}\n")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    return file, rows


def program(path):
    """Its absolute path."""
    found = shutil.which(path)
    if found is None:
        sys.exit(f"{path} is not there; ./dev build makes it in build/release/bin")
    return str(pathlib.Path(found).absolute())


def answer(*command, cache=""):
    """What a command of the program prints, read as JSON if it was asked for. Ends with the last line of its reason where it fails."""
    environment = {**os.environ, **({"ATTNFORGE_CACHE": str(cache)} if cache else {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        return json.loads(done.stdout) if "--json" in command else done.stdout
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    if "--json" in command and done.stdout:  # a row says why it failed
        said = [row["error"]["message"] for row in json.loads(done.stdout)["results"] if "error" in row][:1] or said
    sys.exit(f"{shlex.join(command)}\nfailed with exit code {done.returncode}: {''.join(said)}")


def package(folder=None, library=None):
    """Lets attnforge be imported from a python/ folder, this checkout's if none is named."""
    if library:
        os.environ.setdefault("ATTNFORGE_LIBRARY", str(library))
    sys.path.insert(0, str(folder or ROOT / "python"))


def torch():
    """The module; attnforge can be imported, too."""
    try:
        import torch as module
    except ImportError:
        sys.exit(f"{sys.executable} has no torch, which this needs")
    if not module.cuda.is_available():
        sys.exit("torch finds no GPU here")
    package()
    import attnforge

    attnforge.configure(policy="estimate")  # what a benchmark tunes it tunes by itself
    return module


def about(torch):
    """"NVIDIA H200, driver 580.159.04, torch 2.11, attnforge 0.1.0": of the GPU that torch runs on."""
    import attnforge

    driver = gpu().split(", ")[-1]
    return f"{torch.cuda.get_device_name()}, driver {driver}, torch {torch.__version__}, attnforge {attnforge.version()}"
