#!/usr/bin/env python3
"""Installs the build, builds examples/ against that as its README says, and runs every program: on the fake driver, which computes
nothing but counts, or with --gpu on the one that is there, where what they print is checked. Exit 77: no GPU.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import io
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from unittest import mock

CONFIG = r"fwd_\w+ \w+=\d+.*"
PROBLEM_SIZES = (("num_heads=32:8", "num_heads=4:1"), ("batch=8", "batch=2"), ("2048", "256"), ("4096", "512"))


def run(command, env=None, expected=0, warnings=subprocess.STDOUT):
    """What it prints; warnings=None: without what it says on standard error, such as PyTorch's own warnings."""
    print("+", shlex.join(map(str, command)), flush=True)
    done = subprocess.run(list(map(str, command)), env=env, text=True, stdout=subprocess.PIPE, stderr=warnings, timeout=240)
    print(done.stdout, end="", flush=True)
    if done.returncode != expected:
        sys.exit(f"exit code {done.returncode}, not {expected}")
    return done.stdout


def expect_lines(text, *patterns):
    lines = text.splitlines()
    if len(lines) != len(patterns):
        sys.exit(f"{len(patterns)} lines expected, not {len(lines)}")
    for line, pattern in zip(lines, patterns):
        if not re.fullmatch(pattern, line):
            sys.exit(f"expected {pattern!r}, not {line!r}")


def has_gpu():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


class Machine:
    """The installed examples and where they run."""

    def __init__(self, args, folder):
        self.args, self.folder, self.prefix = args, folder, folder / "prefix"
        run(["cmake", "--install", args.build, "--prefix", self.prefix])
        self.library = next(self.prefix.rglob("libattnforge.so"))
        self.report = folder / "report"
        path = [str(self.library.parent)] if args.gpu else [str(args.fake_driver.parent), str(self.library.parent)]
        path += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
        self.env = {**os.environ, "LD_LIBRARY_PATH": ":".join(path), "ATTNFORGE_CACHE": ":memory:"}
        self.env["ATTNFORGE_LIBRARY"] = str(self.library)
        self.env["PYTHONPATH"] = str(self.prefix / "share/attnforge/python")
        if not args.gpu:
            self.env.update(
                FAKE_GPU_LAUNCH_US="1", FAKE_DRIVER_REPORT=str(self.report), ATTNFORGE_NVRTC=str(args.fake_nvrtc)
            )
        # First runs of one program tune, by processes of the installed attnforge; in those of others nothing would differ.
        self.untuned = self.env if args.gpu else {**self.env, "ATTNFORGE_WORKER": "none"}

    def build(self):
        """As examples/README.md says; without run paths, so that LD_LIBRARY_PATH alone decides which driver is met."""
        args, build = self.args, self.folder / "examples"
        include = next(each for each in args.cuda_include.split(";") if (pathlib.Path(each) / "cuda.h").exists())
        run(
            ["cmake", "-G", args.generator, "-S", args.examples, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}"]
            + [f"-DCMAKE_C_COMPILER={args.c_compiler}", f"-DCMAKE_CXX_COMPILER={args.cxx_compiler}"]
            + [f"-DCMAKE_{language}_FLAGS={args.flags} -Wall -Wextra -Werror" for language in ("C", "CXX")]
            + [f"-DCUDA_DRIVER_INCLUDE_DIR={include}", f"-DCUDA_DRIVER_LIBRARY={args.fake_driver}", "-DCMAKE_SKIP_RPATH=ON"]
        )
        run(["cmake", "--build", build, "-j2"])
        return build

    def counts(self):
        """Of the last process on the fake driver: loads, launches, captured and replayed ones."""
        return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", self.report.read_text())}


def expect_counts(machine, wanted, why):
    if machine.args.gpu:
        return
    counts = machine.counts()
    print(counts, flush=True)
    if not wanted(**counts):
        sys.exit(f"expected that {why}")


def programs(machine):
    gpu, build = machine.args.gpu, machine.build()
    of = (lambda value: str(value)) if gpu else (lambda value: "0")  # nothing is computed on the fake driver
    expect_lines(
        run([build / "attend"], machine.env), rf"{CONFIG} \(\w+\)", rf"o\[0\] = {of(1)}; every value is 1, .*"
    )
    expect_counts(machine, lambda launches, **_: launches >= 1, "one run launches")

    expect_lines(
        run([build / "stream_and_graph"], machine.env),
        CONFIG,
        rf"launched: o = {of(7)} of values that are 7",
        *(rf"replay {step}: o = {of(step)} of values that are {step}" for step in (1, 2, 3)),
    )
    expect_counts(
        machine,
        lambda launches, captured, replayed, **_: launches == captured >= 2 and replayed == 3 * captured,
        "both layers are launched once, captured once and replayed three times",
    )

    seen = (lambda *keys: " ".join(map(str, keys))) if gpu else (lambda *keys: " ".join("1" for _ in keys))
    expect_lines(
        run([build / "engine"], machine.untuned),
        f"prefill: keys seen {seen(17, 5, 300)}",
        f"prefill: keys seen {seen(512, 1, 64, 200)}",
        f"decode: keys seen {seen(0, 2, 65, 201)}",
        f"decode: keys seen {seen(0, 3, 66, 202)}",
        f"decode: keys seen {seen(0, 4, 67, 203)}",
    )
    # Each plan has its kernel and one that lists the tiles of its sequences.
    expect_counts(machine, lambda loads, launches, **_: loads <= 4 and launches >= 5, "two plans serve five steps")


def fleet(machine):
    """Two databases stand for two machines."""
    script = machine.folder / "fleet" / "tune_fleet.sh"
    script.parent.mkdir()
    shipped = machine.args.examples / "fleet"
    script.write_text((shipped / "tune_fleet.sh").read_text())
    problems = (shipped / "problems.txt").read_text()
    for long, short in () if machine.args.gpu else PROBLEM_SIZES:
        problems = problems.replace(long, short)
    (script.parent / "problems.txt").write_text(problems)
    count = len(re.findall("^fwd ", problems, re.MULTILINE))
    env = {**machine.env, "ATTNFORGE": str(machine.prefix / "bin/attnforge"), "RIGOR": "quick"}
    here, there = ({**env, "ATTNFORGE_CACHE": str(machine.folder / name)} for name in ("here.db", "there.db"))
    run(["bash", script, "tune"], here)
    if "no kernel is ready" not in run(["bash", script, "check"], there, expected=1):
        sys.exit("an empty database is not ready, and says so")
    out = run(["bash", script, "take"], there)
    if f"{count} problems are ready for cached_only\n" not in out:
        sys.exit("every problem is ready where the winners were taken")
    winners = [
        set(re.findall('"config": "([^"]*)"', run([env["ATTNFORGE"], "cache", "ls", "--json"], each)))
        for each in (here, there)
    ]
    if not winners[0] or winners[0] != winners[1]:
        sys.exit(f"both machines run the same kernels, not {winners}")


def fake_torch():
    """tests/python/fake_torch.py and what attend.py asks of PyTorch beside attention."""
    path = pathlib.Path(__file__).parents[1] / "python" / "fake_torch.py"
    spec = importlib.util.spec_from_file_location("fake_torch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch = module.Torch()
    torch.cuda.is_available = lambda: True
    torch.cuda.CUDAGraph, torch.cuda.graph = mock.MagicMock(), lambda graph: contextlib.nullcontext()
    torch.nn = mock.MagicMock()
    torch.randn = lambda *shape, dtype, device: torch.Tensor(shape, dtype)
    torch.tensor = lambda values, dtype, device: torch.Tensor((len(values),), dtype)
    torch.Tensor.float = lambda self: mock.MagicMock()
    torch.Tensor.transpose = lambda self, a, b: self
    torch.Tensor.__isub__ = lambda self, other: self
    return torch


def attend_in_python(script, torch):
    """In this process: `torch` is what the script imports; None: it is not there."""
    out = io.StringIO()
    with mock.patch.dict(sys.modules, {"torch": torch}), mock.patch.object(sys, "argv", [script]):
        with contextlib.redirect_stdout(out), mock.patch.object(sys, "exit"):
            runpy.run_path(script, run_name="__main__")
    print(out.getvalue(), end="")
    return out.getvalue()


def python(machine):
    script = machine.args.examples / "python" / "attend.py"
    if machine.args.gpu:
        out = run([sys.executable, script], machine.env, warnings=None)
        if "PyTorch is not installed" in out or "PyTorch sees no GPU" in out:
            return  # the other test has that
        near = r"0\.0[0-4]\d"
        expect_lines(
            out,
            f"a layer: differs from PyTorch's by at most {near}",
            r"packed prompts: \(322, 8, 64\)",
            r"a KV cache: \(4, 1, 8, 64\)",
            r"a CUDA graph: differs from a call by at most 0\.000",
        )
        return
    for mode in ("torch", "nothing"):
        out = run([sys.executable, __file__, "--attend", script, mode], machine.untuned)
        if mode == "nothing":
            expect_lines(out, r"PyTorch is not installed .*", "fwd_wgmma_sm90a .*")
            continue
        expect_lines(out, "a layer: .*", r"packed prompts: \(322, 8, 64\)", r"a KV cache: \(4, 1, 8, 64\)", "a CUDA graph: .*")
        expect_counts(machine, lambda launches, **_: launches >= 5, "five calls launch")


def flex_programs(machine):
    script = machine.args.examples / "python" / "flex_programs.py"
    if not machine.args.gpu:
        out = run([sys.executable, __file__, "--attend", script, "nothing"], machine.env)
        expect_lines(out, r"PyTorch with flex_attention is not installed .*", "fwd_wgmma_sm90a .*")
        return
    out = run([sys.executable, script], machine.env, warnings=None)
    if "is not installed" not in out and "sees no GPU" not in out:
        same = r": differs from flex_attention's by at most 0\.0[0-4]\d"
        expect_lines(out, f"ALiBi{same}", f"a capped window{same}", f"documents{same}")


def llama_in_pages(machine):
    script = machine.args.examples / "python" / "llama_in_pages.py"
    if not machine.args.gpu:
        out = run([sys.executable, __file__, "--attend", script, "nothing"], machine.env)
        expect_lines(out, r"PyTorch is not installed .*", r"fwd_\w+ .*")
        return
    out = run([sys.executable, script], machine.env, warnings=None)
    if "is not installed" not in out and "sees no GPU" not in out:
        same = r"logits up to [3-9]\.\d, differ from dense by at most 0\.0[0-4]\d"
        expect_lines(out, f"a: 37 tokens, {same}", f"b: 25 tokens, {same}", f"c: 60 tokens, {same}", "12 pages are free")


def main():
    if sys.argv[1:2] == ["--attend"]:
        attend_in_python(sys.argv[2], fake_torch() if sys.argv[3] == "torch" else None)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--build", "--examples", "--fake-driver", "--fake-nvrtc"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    for name in ("--generator", "--c-compiler", "--cxx-compiler", "--cuda-include"):
        parser.add_argument(name, required=True)
    parser.add_argument("--flags", default="")
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    if args.gpu and not has_gpu():
        print("no GPU")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="attnforge-examples-") as folder:
        machine = Machine(args, pathlib.Path(folder))
        programs(machine)
        fleet(machine)
        if "-fsanitize" not in args.flags:  # Python itself is not built with sanitizers
            python(machine)
            flex_programs(machine)
            llama_in_pages(machine)


if __name__ == "__main__":
    main()
