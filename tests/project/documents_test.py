#!/usr/bin/env python3
"""Tests of the documents against the sources: no build, no GPU.

usage: documents_test.py ROOT
"""

import csv
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tools"))

import api_pages  # noqa: E402
import c_mirror  # noqa: E402
import c_words  # noqa: E402

SOURCES = ("cache", "cli", "generator", "include", "plan", "python", "reference", "runtime", "templates", "tools", "tuner")


def documents():
    folders = ("docs", "examples", "bench", "templates")
    return [*ROOT.glob("*.md"), *(page for folder in folders for page in ROOT.glob(f"{folder}/**/*.md"))]


def words(text):
    return " ".join(text.split())


def messages():
    """All string literals of the sources, with the ones that stand next to each other joined, and dev as it is."""
    texts = [(ROOT / "dev").read_text()]
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cpp", ".h", ".py", ".sh"):
                texts.append(re.sub(r'"\s*\n\s*f?"', "", path.read_text()))
    return words("\n".join(texts)).replace('\\"', '"')


def quoted_symptoms(page):
    """The text between backquotes of each heading of the page: "..." stands for what differs from case to case."""
    return re.findall(r"^### `(.*)`$", page, flags=re.M)


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    found = []
    for title in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), flags=re.M):
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


class ApiPagesTest(unittest.TestCase):
    def test_the_pages_are_what_the_script_makes(self):
        for path, text in api_pages.pages().items():
            self.assertEqual(path.read_text(), text, f"{path.relative_to(ROOT)} is old: run python3 tools/api_pages.py")

    def test_the_python_page_has_what_integrations_name(self):
        page = (ROOT / "docs/api/python.md").read_text()
        for name in ("integrations.install_as", "integrations.jax.attention", "flash_attn.flash_attn_varlen_func", "flash_attn.v3.flash_attn_combine"):
            self.assertIn(f"#### `attnforge.{name}`", page)

    def test_the_words_of_c_h_are_those_of_the_problem(self):
        """problem_table_test.cpp compares docs/PROBLEM.md with the library."""
        header, page = ((ROOT / name).read_text() for name in ("include/attnforge/c.h", "docs/PROBLEM.md"))
        self.assertEqual(header, c_words.header(header, page), "c.h is old: run tools/c_words.py, then tools/api_pages.py")
        for word in ("bwd", "score=", "dargs=", "deterministic"):
            self.assertIn(f" *   {word}" if word != "bwd" else "or bwd", header)

    def test_python_has_the_c_api_of_the_headers(self):
        mirror = ROOT / "python/attnforge/_c.py"
        self.assertEqual(mirror.read_text(), c_mirror.mirror(), "_c.py is old: run python3 tools/c_mirror.py")
        for text in ('class Cache(Structure)', '"attnforge_block_mask_draw": (c_int, [c_void_p, c_int64, c_int64, c_int32, c_void_p])'):
            self.assertIn(text, mirror.read_text())

    def test_every_function_of_the_c_api_has_an_entry(self):
        header = "".join((ROOT / "include/attnforge" / name).read_text() for name in ("c.h", "c_tensors.h", "c_block_mask.h", "c_tools.h"))
        functions = set(re.findall(r"^ATTNFORGE_API [^;(]*?\b(attnforge_\w+)\(", header, flags=re.M))
        headings = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^### .*$", (ROOT / "docs/api/c.md").read_text(), flags=re.M)))
        self.assertGreater(len(functions), 20)
        self.assertEqual(functions - set(headings), set())

    def test_every_struct_and_class_of_the_cpp_api_has_an_entry(self):
        page = (ROOT / "docs/api/cpp.md").read_text()
        headings = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^#### .*$", page, flags=re.M)))
        for path in (ROOT / "include/attnforge").glob("*.h"):
            if not re.fullmatch(r"c(_\w+)?\.h", path.name):
                for name in re.findall(r"^(?:struct|class|enum class) (?:ATTNFORGE_API )?(\w+) [^;]*\{$", path.read_text(), flags=re.M):
                    self.assertIn(name, headings, path.name)
        self.assertNotRegex(page, r"(?m)^#+ *$")

    def test_one_header_has_all(self):
        headers = {path.name for path in (ROOT / "include/attnforge").glob("*.h")} - api_pages.OTHER_HEADERS
        self.assertEqual(set(re.findall(r'"attnforge/(\w+\.h)"', (ROOT / "include/attnforge/attnforge.h").read_text())), headers)

    def test_private_parts_are_not_shown(self):
        page = (ROOT / "docs/api/cpp.md").read_text()
        for text in ("private:", "friend ", "PlanState", "ATTNFORGE_API"):
            self.assertNotIn(text, page)


class TroubleshootingTest(unittest.TestCase):
    def test_every_symptom_is_a_message_of_the_sources(self):
        known = messages()
        symptoms = quoted_symptoms((ROOT / "docs/TROUBLESHOOTING.md").read_text())
        self.assertGreater(len(symptoms), 15)
        for symptom in symptoms:
            parts = [words(part) for part in symptom.split("...") if part.strip()]
            self.assertGreaterEqual(max(map(len, parts)), 12, f"{symptom}: too short to be found")
            for part in parts:
                self.assertIn(part, known, f"{symptom}: no source says this any more")


class EnvironmentTest(unittest.TestCase):
    def test_nothing_is_read_that_another_user_has_set(self):
        """docs/ENVIRONMENT.md: with another user's rights all variables count as unset."""
        for folder in SOURCES:
            for path in (ROOT / folder).rglob("*.cpp"):
                self.assertNotRegex(path.read_text(), r"(?<!secure_)getenv\(", f"{path.relative_to(ROOT)}: secure_getenv() it is")


class CommandsTest(unittest.TestCase):
    def test_every_command_of_dev_exists(self):
        known = re.findall(r"^  ([a-z-]+)\) run_|^  ([a-z-]+)\) \w+ ;;", (ROOT / "dev").read_text(), flags=re.M)
        known = {name for pair in known for name in pair if name}
        self.assertIn("demo", known)
        for page in documents():
            for name in re.findall(r"\./dev ([a-z-]+)", page.read_text()):
                self.assertIn(name, known, page.relative_to(ROOT))


class ArchsTest(unittest.TestCase):
    def test_archs_are_spelt_as_the_program_prints_them(self):
        known = {f"sm_{name}" for name in re.findall(r'^    \{\d+, "(\w+)", ', (ROOT / "generator/arch.cpp").read_text(), flags=re.M)}
        self.assertIn("sm_90a", known)
        for page in [*documents(), ROOT / "dev", ROOT / "tools/demo.sh", *(ROOT / "cli").glob("*.cpp")]:
            for names in re.findall(r"--arch[ =](sm_[\w,]+)", page.read_text()):
                for name in names.split(","):
                    self.assertIn(name, known, page.relative_to(ROOT))


class LinksTest(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        for page in documents():
            text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"https?:", target):
                    continue
                name, _, anchor = target.partition("#")
                path = (page.parent / name).resolve() if name else page
                self.assertTrue(path.exists(), f"{page.relative_to(ROOT)} links to {target}")
                if anchor:
                    self.assertIn(anchor, anchors(path), f"{page.relative_to(ROOT)} links to {target}")


class ReadmeTest(unittest.TestCase):
    def test_set_up_takes_as_long_as_was_measured(self):
        with (ROOT / "bench/results/setup.csv").open() as file:
            rows = csv.DictReader(line for line in file if not line.startswith("#"))
            rows = {(row["system"].split(" (")[0], row["state"]): float(row["wall_s"]) for row in rows if row["step"] == "all"}
        readme = words((ROOT / "README.md").read_text())
        for key, seconds in rows.items():
            self.assertIn(f"{round(seconds) // 60} min {round(seconds) % 60} s", readme, key)
        self.assertLessEqual(rows["Debian GNU/Linux 12", "bare"], 180)
        self.assertLessEqual(rows["Debian GNU/Linux 12", "packages present"], 150)

    def test_it_stays_short_and_names_every_document(self):
        readme = (ROOT / "README.md").read_text()
        self.assertLessEqual(len(readme.splitlines()), 130)
        for command in ("./dev demo", "./dev test"):
            self.assertIn(command, readme)
        reached, waiting = set(), [ROOT / "README.md"]
        while waiting:
            page = waiting.pop()
            reached.add(page)
            for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
                linked = (page.parent / target).resolve()
                if linked not in reached:
                    waiting.append(linked)
        missing = [str(page.relative_to(ROOT)) for page in documents() if page not in reached]
        self.assertEqual(missing, [], "no page that README.md leads to links to these")


if __name__ == "__main__":
    unittest.main()
