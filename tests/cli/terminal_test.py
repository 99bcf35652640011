#!/usr/bin/env python3
"""The program on a terminal of 80 columns: no line is longer, no word is cut, and what was cut of a command can be copied. And the
completion of shells. Results of searches that run at a time, on the fake GPUs of tests/support/fake_driver.

usage: terminal_test.py ATTNFORGE FOLDER_OF_DRIVER NVRTC
"""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

ATTNFORGE, DRIVER, NVRTC = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
FAKE_GPUS = {"LD_LIBRARY_PATH": DRIVER, "ATTNFORGE_NVRTC": NVRTC, "FAKE_GPU_LAUNCH_US": "1", "FAKE_NVRTC_COMPILE_MS": "15",
             "ATTNFORGE_SHIPPED_WINNERS": "0"}
COLUMNS = 80
PROBLEM = "fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal".split()


def environment(**more):
    return {**os.environ, "ATTNFORGE_CACHE": ":memory:", "ATTNFORGE_NVRTC": "/nowhere/libnvrtc.so", "TERM": "xterm", **more}


def sent_to_terminal(*arguments, **more):
    """What the program writes to a terminal, as it does."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen([ATTNFORGE, *arguments], stdin=child, stdout=child, stderr=child, env=environment(**more))
    os.close(child)
    said = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # of a terminal whose other side is closed
            break
        if not piece:
            break
        said += piece
    os.close(parent)
    process.wait()
    return said.decode()


def on_terminal(*arguments, **more):
    """The same without colours."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", sent_to_terminal(*arguments, **more)).replace("\r\n", "\n")


def seen_on_terminal(said):
    """The lines that are there at the end, as if the terminal were as high as it must be."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", said):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif piece.startswith("\x1b") and piece.endswith("A"):
            row = max(0, row - int(piece[2:-1] or 1))
        elif piece == "\x1b[K":
            lines[row] = lines[row][:column]
        elif piece == "\x1b[J":
            lines[row:] = [lines[row][:column]]
        elif not piece.startswith("\x1b"):
            lines[row] = lines[row].ljust(column)[:column] + piece + lines[row][column + len(piece) :]
            column += len(piece)
    return lines


def in_a_pipe(*arguments):
    done = subprocess.run([ATTNFORGE, *arguments], capture_output=True, text=True, env=environment())
    return done.stdout + done.stderr


class TerminalTest(unittest.TestCase):
    def test_lines_fit_and_no_word_is_cut(self):
        commands = (
            ["help", "problem"],
            ["help", "environment"],
            ["list"],
            ["doctor"],
            ["inspect", "--no-compile", "--arch", "H100", *PROBLEM],
            ["inspect", "--no-compile", "--arch", "sm_86", "--section", "candidates,cuts,config,database", *PROBLEM],
            ["inspect", "--arch", "sm_90a", "--family", "fwd_wgmma_sm90a", *PROBLEM, "k=int8", "v=int8"],
            ["inspect", "--arch", "sm_75", *PROBLEM],
            ["run", "--random", "1", *PROBLEM],
            ["run", "--cpu", "--random", "1", "--check", "fwd", "bf16", "seqlen=64", "head_dim=64"],
            ["tune", "fwd", "fp8"],
        )
        for command in commands:
            with self.subTest(command=" ".join(command)):
                said, plain = on_terminal(*command), in_a_pipe(*command)
                self.assertNotEqual(said, "")
                for line in said.splitlines():
                    self.assertTrue(len(line) <= COLUMNS or " " not in line.strip(), line)
                words = [word for word in said.split() if word != "\\"]
                if command[0] != "run" or "--check" not in command:  # which takes another time each time
                    self.assertEqual(words, plain.split() if command[0] != "help" else [each for each in plain.split() if each != "\\"])

    def test_what_is_cut_goes_on_below_its_cell(self):
        said = on_terminal("list", "families")
        features = next(i for i, line in enumerate(said.splitlines()) if line.startswith("    features  causal"))
        self.assertRegex(said.splitlines()[features + 1], r"^ {14}\w")
        said = on_terminal("help", "problem")
        self.assertRegex(said, r"\n  kv_scale=WHAT       of k and v of 8 or 4 bits, and q of 8: [^\n]*\n {22}\w")

    def test_a_command_that_is_cut_can_be_copied(self):
        said = on_terminal("inspect", "--no-compile", "--arch", "sm_90a", *PROBLEM)
        command = re.search(r"attnforge tune (?:[^\n]*\\\n)+[^\n]*", said)[0]
        words = subprocess.run(["bash", "-c", f"attnforge() {{ printf '%s\\n' \"$@\"; }}; {command}"], capture_output=True, text=True).stdout.split()
        self.assertEqual(words[:3], ["tune", "fwd", "bf16"])
        self.assertEqual(words[-1], "causal")

    def test_bars_of_searches_do_not_run_over_results(self):
        with tempfile.TemporaryDirectory() as folder:
            problems = os.path.join(folder, "problems.txt")
            with open(problems, "w") as file:
                file.writelines(f"fwd fp16 num_heads=2 seqlen={seqlen} head_dim=64\n" for seqlen in (64, 128, 256, 512, 1024, 2048))
            command = "tune", "--gpu", "all", "--rigor", "quick", "--file", problems, "--cache", os.path.join(folder, "a.db")
            said = sent_to_terminal(*command, **FAKE_GPUS)
        self.assertGreater(said.count("\x1b[K"), 0, "bars were drawn")
        lines = seen_on_terminal(said)
        for start, count in (("  winner ", 6), ("  untuned ", 6), ("  speed-up ", 6), ("GPU 0 ", 0), ("GPU 1 ", 0)):
            self.assertEqual(sum(line.startswith(start) for line in lines), count, f"{start}:\n" + "\n".join(lines))

    def test_pipes_get_lines_as_they_are(self):
        self.assertTrue(any(len(line) > COLUMNS for line in in_a_pipe("list").splitlines()))


class CompletionTest(unittest.TestCase):
    def complete(self, *words):
        script = in_a_pipe("completion", "bash")
        line = f"COMP_WORDS=(attnforge {' '.join(words)}); COMP_CWORD={len(words)}; _attnforge; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_knows_verbs_options_and_words(self):
        self.assertEqual(self.complete("tu"), ["tune"])
        self.assertEqual(self.complete("cache", "ex"), ["export"])
        self.assertEqual(set(self.complete("tune", "--ri")), {"--rigor"})
        self.assertEqual(self.complete("bench", "fwd", "bf16", "softc"), ["softcap="])
        self.assertEqual(self.complete("run", "--cpu", "caus"), ["causal"])
        self.assertEqual(set(self.complete("help", "p")), {"problem"})
        self.assertEqual(self.complete("cache", "ls", "fw"), [], "no verb with problems")
        self.assertEqual(set(self.complete("completion", "''")), {"bash", "zsh", "fish"})

    def test_every_option_of_the_help_is_there(self):
        scripts = {shell: in_a_pipe("completion", shell) for shell in ("bash", "zsh", "fish")}
        for verb in ("tune", "run", "bench", "inspect", "report", "list", "doctor"):
            for option in set(re.findall(r"^  (?:-\w,)?--([a-z0-9-]+)", in_a_pipe(verb, "--help"), flags=re.M)):
                self.assertIn(f"--{option}", scripts["bash"])
                self.assertIn(f"--{option}", scripts["zsh"])
                self.assertRegex(scripts["fish"], rf"__attnforge_at \"{verb}\"' -l {option}\b")

    def test_scripts_are_well_formed(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell) is None:
                continue
            with tempfile.NamedTemporaryFile("w", suffix=shell) as file:
                file.write(in_a_pipe("completion", shell))
                file.flush()
                done = subprocess.run([shell, "-n", file.name], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_another_shell_is_refused(self):
        self.assertIn("tcsh", in_a_pipe("completion", "tcsh"))


if __name__ == "__main__":
    unittest.main()
