"""What tests of an installed package share: running a command, and an installation in a folder that is removed at the end."""
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile


def run(command, expected_code=0, **kwargs):
    """Output of a command, which is shown. Ends the test when the exit code is another."""
    print("+", shlex.join(map(str, command)), flush=True)
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    print(done.stdout, end="", flush=True)
    if done.returncode != expected_code:
        sys.exit(f"exit code {done.returncode}, not {expected_code}")
    return done.stdout


def expect(text, wanted):
    if str(wanted) not in text:
        sys.exit(f"expected {str(wanted)!r} in this output")


@contextlib.contextmanager
def temporary_folder():
    folder = pathlib.Path(os.path.realpath(tempfile.mkdtemp(prefix="attnforge-consumer-")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def install(build, prefix):
    """Installs the build, then moves it: an installed package may be moved. Gives the folder of the library."""
    run(["cmake", "--install", build, "--prefix", f"{prefix}-staged"])
    pathlib.Path(f"{prefix}-staged").rename(prefix)
    return next(prefix.rglob("libattnforge.so")).parent


def nvrtc_of(attnforge, environment=None):
    """Path of the NVRTC that a program `attnforge` says that it uses."""
    command = [str(attnforge), "doctor", "--json", "--cache", ":memory:"]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=environment).stdout)
    check = next(check for check in report["checks"] if check["name"] == "nvrtc")
    if check["state"] == "failed":
        sys.exit(f"{attnforge} finds no NVRTC: {check['detail']}")
    return pathlib.Path(check["detail"].split(" at ", 1)[1].split(";")[0])


def without_hints():
    """The environment of a user who was told nothing: no variable names a library, a toolkit or a virtual environment."""
    hints = {"ATTNFORGE_LIBRARY", "ATTNFORGE_NVRTC", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in hints}
