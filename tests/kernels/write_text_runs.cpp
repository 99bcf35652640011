// write_text_runs.cpp - writes the generated entries of text runs (text_runs.h) as C++ of the host:
//   write_text_runs COUNT FAMILY...
// First headers, which entries share; then a namespace for each entry with a function that launches
// its kernels by their names.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/kernels/text_runs.h"

namespace attnforge::test {
namespace {

void remove_all(std::string& text, std::string_view what) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos;) text.erase(at, what.size());
}

/// Those of steps have static shared memory, which blocks that run together do not have.
struct Headers {
  std::set<std::string> steps, others;
};

std::string entry_on_host(const Source& source, const std::string& own, Headers& headers) {
  constexpr std::string_view kBegin = "namespace attnforge {\n",
                             kEnd = "}  // namespace attnforge\n";
  std::string body, calls;
  std::istringstream lines(source.entry);
  bool is_kernel = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#include"))
      (line.find("/step_") != line.npos ? headers.steps : headers.others).insert(line);
    if (is_kernel) {
      const std::string name = line.substr(0, line.find('('));
      calls += fmt::format("  if (step.kernel == \"{0}\") return run_kernel({0}, step);\n", name);
      line = "inline void " + line;
    }
    is_kernel = line.starts_with("extern \"C\"");
    if (!is_kernel && !line.starts_with('#')) body += line + "\n";
  }
  // Products of warpgroups, of which the host has its own.
  for (std::size_t at = 0; (at = body.find(kBegin, at)) != body.npos;) {
    const std::size_t end = body.find(kEnd, at);
    if (body.substr(at, end - at).find("struct UserCode") == body.npos)
      body.erase(at, end - at + kEnd.size());
    else
      body.erase(at, kBegin.size()), at = end;
  }
  for (const std::string_view what : {kEnd, std::string_view("using namespace attnforge;\n"),
                                      std::string_view("__grid_constant__ ")})
    remove_all(body, what);
  return fmt::format(
      "namespace attnforge::test::texts::{} {{\n{}inline void launch(const LaunchStep& step) "
      "{{\n{}  FAIL() << step.kernel;\n}}\n}}\n",
      own, body, calls);
}

}  // namespace
}  // namespace attnforge::test

int main(int argc, char** argv) {
  using namespace attnforge::test;
  Headers headers;
  std::string entries, table;
  for (int family = 2; family < argc; ++family) {
    for (int seed = 1; seed <= std::atoi(argv[1]); ++seed) {
      const TextRun run = text_run(argv[family], static_cast<std::uint64_t>(seed));
      const std::string own = fmt::format("{}_{}", argv[family], seed);
      entries += entry_on_host(run.family->render(run.config, run.problem), own, headers);
      table += fmt::format("    {{\"{}\", {}, texts::{}::launch}},\n", argv[family], seed, own);
    }
  }
  std::string text = "#include \"tests/kernels/text_kernels.h\"\n";
  for (const std::string& header : headers.others) text += header + "\n";
  text += "#undef __shared__\n#define __shared__ static\n";
  for (const std::string& header : headers.steps) text += header + "\n";
  fmt::print(
      "{}{}namespace attnforge::test {{\nstd::span<const TextLaunch> text_launches() {{\n  static "
      "const TextLaunch kAll[] = {{\n{}  }};\n  return kAll;\n}}\n}}\n",
      text, entries, table);
}
