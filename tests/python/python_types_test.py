#!/usr/bin/env python3
"""The stubs of the package: they say what the sources have, and mypy --strict and pyright take a program that uses all of it and no wrong one.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_types_test.py PACKAGE_FOLDER [unittest arguments]
Each is skipped where neither python3 nor .venv of the checkout has it: ./dev lint brings both.
"""

import ast
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PACKAGE = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(PACKAGE))

import attnforge  # noqa: E402
from attnforge import _options, _problem, _weights  # noqa: E402

ROOT = PACKAGE / "attnforge"
STUBS = sorted(ROOT.rglob("*.pyi"))
OPTIONS = set(_options.Options._fields)


def definitions(path):
    """{"name" or "Class.name": [FunctionDef of each overload]} and {class: ClassDef} of a file."""
    functions, classes = {}, {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    functions.setdefault(f"{node.name}.{each.name}", []).append(each)
    return functions, classes


def parameters(function):
    """{name: text of its default, None without} of a function; options= and other rests are left out."""
    a = function.args
    named = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(named) - len(a.defaults)) + a.defaults
    pairs = [*zip(named, defaults), *zip(a.kwonlyargs, a.kw_defaults)]
    return {argument.arg: default and ast.unparse(default) for argument, default in pairs}


def modules():
    """(stub, sources that define what it names)."""
    for stub in STUBS:
        yield stub, [stub.with_suffix(".py")] if stub != ROOT / "__init__.pyi" else [
            each for each in ROOT.rglob("_*.py") if "integrations" not in each.parts and "flash_attn" not in each.parts
        ] + [each for folder in ("_caches", "_calls", "_gradients") for each in (ROOT / folder).glob("*.py")]


class StubsTest(unittest.TestCase):
    def test_functions_have_the_parameters_of_the_sources(self):
        compared = 0
        for stub, sources in modules():
            there = {}
            for source in sources:
                there.update({name: function for name, (function, *_) in definitions(source)[0].items()})
            for name, overloads in definitions(stub)[0].items():
                with self.subTest(stub=stub.name, name=name):
                    wanted = parameters(there[name])
                    if name == "tune":  # by one list of arguments that stands for a problem or three tensors
                        wanted.update(q=None, k=None, v=None, problem=None)
                    for function in overloads:
                        found = parameters(function)
                        more = set(found) - set(wanted)
                        self.assertLessEqual(more, OPTIONS | {"return_lse", "out"}, "of no source")
                        for each in set(found) & set(wanted):
                            same = wanted[each] == found[each] or each in ("q", "q_out", "return_lse")  # which overloads tell apart
                            self.assertTrue(same, f"{each}={found[each]}, but {wanted[each]} in the source")
                    if name != "tune":
                        missing = set(wanted) - set().union(*(parameters(each) for each in overloads))
                        self.assertEqual(missing, set())
                    compared += 1
        self.assertGreater(compared, 70)

    def test_the_package_has_these_names(self):
        functions, classes = definitions(ROOT / "__init__.pyi")
        defined = {name for name in functions if "." not in name} | set(classes) | {"plan_cache", "texts"}
        self.assertEqual(set(attnforge.__all__) - defined, set())
        tree = ast.parse((ROOT / "__init__.pyi").read_text())
        (listed,) = [ast.literal_eval(each.value) for each in tree.body if isinstance(each, ast.Assign) and each.targets[0].id == "__all__"]
        self.assertEqual(listed, attnforge.__all__)
        for name, node in classes.items():
            if name.startswith("_"):
                continue
            kind = getattr(attnforge, name, None) or getattr(sys.modules["attnforge._plans"], name)
            bases = [ast.unparse(each) for each in node.bases]
            self.assertEqual(bases, [each.__name__ for each in kind.__bases__ if each is not object], name)
            methods = {each for each in vars(kind) if not each.startswith("_") and callable(getattr(kind, each))}
            hidden = {"BlockMask": {"on_gpu", "uploaded"}, "Plan": {"run"}, "PlanCache": {"put", "put_call", "passing"}}.get(name, set())
            self.assertEqual(methods - {each.name for each in node.body if isinstance(each, ast.FunctionDef)}, hidden, name)

    def test_options_and_fields_are_those_of_the_sources(self):
        _, classes = definitions(ROOT / "__init__.pyi")

        def fields(name):
            return [each.target.id for each in classes[name].body if isinstance(each, ast.AnnAssign)]

        scores, weights = set(fields("_OfScores")), set(fields("_OfWeights"))
        both, forward = scores | set(fields("_OfBoth")), set(fields("_Options"))
        self.assertEqual(scores | weights, OPTIONS - set(_weights.NOT_OF_WEIGHTS))
        self.assertEqual(both | forward | {"return_lse"}, OPTIONS)
        self.assertEqual(forward, set(_options.OF_FORWARD) - {"return_lse"})
        self.assertEqual(fields("Problem"), list(_problem.Problem.__dataclass_fields__))

    def test_is_marked_as_typed(self):
        self.assertTrue((ROOT / "py.typed").is_file())


LIBRARY = os.environ.get("ATTNFORGE_LIBRARY")
KNOWN = pathlib.Path(LIBRARY).resolve().parents[1] / "mypy_cache" if LIBRARY else os.devnull  # what mypy knows of Python's own modules
CHECKERS = {"mypy": ["--strict", "--no-error-summary", "--python-version", "3.10", "--cache-dir", str(KNOWN)], "pyright": []}


def checkers():
    """{name: command} of those that are here."""
    found = {}
    for name in CHECKERS:
        for python in (sys.executable, PACKAGE.parent / ".venv/bin/python3", "python3"):
            try:
                done = subprocess.run([python, "-c", f"import {name}"], capture_output=True)
            except OSError:
                continue
            if done.returncode == 0:
                found[name] = [str(python), "-m", name, *CHECKERS[name]]
                break
    return found


# Each must be an error, of which mypy's text has this.
WRONG = {
    'attnforge.attention(q, q, q, casual=True)': 'Unexpected keyword argument "casual"',
    'attnforge.attention(q, q, q, is_causal=True)': 'Unexpected keyword argument "is_causal"',
    'attnforge.attention(q, q, q, causal="yes")': 'No overload variant',
    'attnforge.attention(q, q, q, layout="sbhd")': 'No overload variant',
    'o, lse = attnforge.attention(q, q, q)': 'is not iterable',
    'attnforge.attention_backward(q, q, q, q, q, q, page_table=q)': 'Unexpected keyword argument "page_table"',
    'attnforge.tune("fwd bf16", causal=True)': 'No overload variant',
    'attnforge.tune(q, q, q, rigor="most")': 'No overload variant',
    'attnforge.Problem("fwd bf16")': 'incompatible type "str"; expected "int"',
    'attnforge.KvCache(8, 4096, 8, 128, pages=3)': 'Unexpected keyword argument "pages"',
    'attnforge.configure(policy="never")': 'incompatible type',
    'attnforge.quantize_kv(q, "int3")': 'incompatible type',
    'attnforge.version().value': 'has no attribute "value"',
    'attnforge.attend(q)': 'has no attribute "attend"',
}


@unittest.skipUnless(checkers(), "there is no mypy and no pyright: python3 -m pip install -r tools/types_requirements.txt")
class CheckersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lines = [f"def wrong_{i}(q: Tensor) -> None:\n    {line}\n" for i, line in enumerate(WRONG)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(PACKAGE)], "pythonVersion": "3.10"}))
            (path / "right.py").write_text((HERE / "typed_program.py").read_text())
            (path / "wrong.py").write_text("import attnforge\n\n\nclass Tensor: ...\n\n\n" + "\n\n".join(lines))
            environment = {**os.environ, "MYPYPATH": str(PACKAGE)}
            environment.pop("LD_LIBRARY_PATH", None)
            running = {
                name: subprocess.Popen([*command, "right.py", "wrong.py"], cwd=path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for name, command in checkers().items()
            }
            cls.said = {name: each.communicate()[0] for name, each in running.items()}

    def test_a_program_that_uses_everything_is_right(self):
        for name, said in self.said.items():
            self.assertIn("wrong.py:", said, name)  # it looked at both
            self.assertNotIn("right.py:", said)

    def test_wrong_programs_are_not(self):
        for name, said in self.said.items():
            for i, (line, wanted) in enumerate(WRONG.items()):
                of_line = [each for each in said.splitlines() if f"wrong.py:{7 + 4 * i + 1}:" in each and "error" in each]
                self.assertTrue([each for each in of_line if name == "pyright" or wanted in each], f"{name}: {line}: {of_line}")


class ProgramTest(unittest.TestCase):
    def test_it_uses_everything(self):
        program = (HERE / "typed_program.py").read_text()
        for stub in STUBS:
            functions, _ = definitions(stub)
            for name in functions:
                short = name.rpartition(".")[2]
                if not short.startswith("__"):
                    self.assertIn(short, program, f"{stub.name}: {name}")
        for name in attnforge.__all__:
            self.assertIn(name, program)


if __name__ == "__main__":
    unittest.main()
