#!/usr/bin/env python3
"""A program of the whole library asks for no newer glibc than that it was linked for, and what cmake/old_glibc.c has in place of the newer
one's works: constructors, files, waits with a limit, seeds.

usage: old_glibc.py ROOT BUILD_DIR C_COMPILER CXX_COMPILER
"""
import pathlib
import re
import subprocess
import sys

from installation import run, temporary_folder

OLDEST = "2.27"

PROGRAM = r"""
#include <attnforge/problem.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <string>
#include <sys/stat.h>
#include <thread>

using Clock = std::chrono::steady_clock;
std::string constructed = "constructed";

int main(int, char** arguments) {
  std::timed_mutex busy;
  std::mutex mutex;
  std::condition_variable never;
  busy.lock();
  const auto began = Clock::now();
  std::thread([&] { std::printf("locked %d\n", busy.try_lock_for(std::chrono::milliseconds(30))); }).join();
  std::unique_lock<std::mutex> lock(mutex);
  std::printf("waited %d\n", never.wait_until(lock, Clock::now() + std::chrono::milliseconds(40)) == std::cv_status::timeout);
  const auto took = std::chrono::duration<double>(Clock::now() - began).count();
  struct stat of_program;
  std::printf("in time %d\n", took >= 0.07 && took < 30);
  std::printf("sizes agree %d\n", stat(arguments[0], &of_program) == 0 && std::filesystem::file_size(arguments[0]) == std::uintmax_t(of_program.st_size));
  std::printf("links are seen %d\n", std::filesystem::is_symlink(std::string(arguments[0]) + ".link"));
  std::random_device seeds;
  std::printf("seeds differ %d\n", seeds() != seeds() || seeds() != seeds());
  std::printf("%s\n", constructed.c_str());
  std::printf("%s\n", attnforge::to_string(attnforge::parse_problem("fwd bf16 seqlen=256 head_dim=64")).c_str());
  std::printf("file %d\n", int(std::ifstream(arguments[0]).good()));
}
"""


def main(root, build, c_compiler, compiler):
    root, build = pathlib.Path(root), pathlib.Path(build)
    cached = dict(re.findall(r"^(\w+):FILEPATH=(.*)$", (build / "CMakeCache.txt").read_text(), flags=re.M))
    libraries = [cached[f"ATTNFORGE_LIBRARY_{name}"] for name in ("sqlite3", "zstd", "xxhash")]
    if not all(each.endswith(".a") for each in libraries):
        print("skipped: SQLite, zstd or xxhash is no archive here")
        sys.exit(77)
    with temporary_folder() as folder:
        run([sys.executable, root / "cmake/old_glibc.py", OLDEST, c_compiler, folder / "glibc"])
        run([c_compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-c", root / "cmake/old_glibc.c", "-o", folder / "old_glibc.o"])
        (folder / "main.cpp").write_text(PROGRAM)
        run([compiler, "-std=c++20", f"-I{root}/include", folder / "main.cpp", folder / "old_glibc.o", build / "lib/libattnforge.a", *libraries,
             "-o", folder / "program", "-static-libstdc++", f"-L{folder}/glibc", "-Wl,--no-as-needed", "-lpthread", "-ldl", "-lm",
             "-Wl,--allow-shlib-undefined,--wrap=__libc_start_main"])
        (folder / "program.link").symlink_to("program")
        said = run([folder / "program"])
        for wanted in ("locked 0", "waited 1", "in time 1", "sizes agree 1", "links are seen 1", "seeds differ 1", "constructed", "seqlen_q=256", "file 1"):
            if wanted not in said:
                sys.exit(f"not '{wanted}' but:\n{said}")
        needed = subprocess.run(["objdump", "-p", folder / "program"], check=True, capture_output=True, text=True).stdout
        versions = {tuple(map(int, each.split("."))) for each in re.findall(r"\bGLIBC_([\d.]+)", needed)}
        oldest = tuple(map(int, OLDEST.split(".")))
        if not versions or max(versions) > oldest or re.search(r"GLIBCXX|CXXABI", needed):
            sys.exit(f"it asks for {sorted(versions)} of glibc, or for a libstdc++:\n{needed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
