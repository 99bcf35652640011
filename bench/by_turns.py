"""What `attnforge bench` says of a config, for scripts that time several by turns. Importing this asks nothing."""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess


class Failed(Exception):
    """Says which command failed, and why."""


def answer(command, database, environment=None):
    """What a command of attnforge prints. Raises Failed with its last line of reason."""
    environment = {**os.environ, "ATTNFORGE_CACHE": str(database), **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    if "--json" in command and done.stdout:  # a row says why it failed
        said = [row["error"]["message"] for row in json.loads(done.stdout)["results"] if "error" in row][:1] or said
    raise Failed(f"{shlex.join(command)}\nfailed with exit code {done.returncode}: {''.join(said)}")


def bench(program, problems, config, database, *options, environment=None):
    """The JSON of `attnforge bench` for the problems of one line at a config. Raises Failed if it has no time of one."""
    return json.loads(answer([program, "bench", problems, "--config", config, "--json", "-q", *options], database, environment))


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return int(text)


def program_named(text):
    """Its absolute path: two builds are told apart by it."""
    path = shutil.which(text)
    if path is None:
        raise argparse.ArgumentTypeError(f"{text} is not a program; give the path of a built attnforge, e.g. build/release/bin/attnforge")
    return str(pathlib.Path(path).absolute())
