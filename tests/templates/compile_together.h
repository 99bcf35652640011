// compile_together.h - many compiles on two threads: a machine of the suite has two cores. Each
// source is compiled once; and what C++ alone says of it, in a tenth of the time.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "attnforge/error.h"
#include "generator/source.h"
#include "runtime/compile/compiler.h"

namespace attnforge::test {

/// Calls compile_one(i) for i from 0 to `count` - 1, from the front: what takes longest belongs
/// there. Returns what each one gave, a text, or the text of the Error that it threw.
template <class CompileOne>
std::vector<std::string> compile_together(std::size_t count, CompileOne&& compile_one) {
  std::vector<std::string> said(count);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < count;) {
      try {
        said[i] = compile_one(i);
      } catch (const Error& error) {
        said[i] = error.what();
      }
    }
  };
  std::thread second(work);
  work();
  second.join();
  return said;
}

/// What the compiler says of a kernel, and the size and the digest of its machine code.
struct Compiled : KernelResources {
  int code_bytes = 0;  // of all kernels of the cubin
  std::string code;    // machine_code_digest() of it
  std::string log;
};

/// As compile(), of which equal sources get equal results: what an earlier test, or a run of the
/// suite in this build folder, has compiled is not compiled again. Its folder
/// tests/templates/compiled may be deleted at any time.
Compiled compiled(const Source& source, const Arch& arch);

/// As compile_to_ptx(), once of equal sources.
std::string compiled_ptx(const Source& source, const Arch& arch);

/// Throws as compile() does when C++ refuses the source, with all templates that it uses made. What
/// optimises and assembles is not asked. (--Ofast-compile would ask it for half the price, but
/// NVRTC 13.0 remembers a part of that option in later compiles of the process.) What passed once
/// passes as in compiled().
void check_cpp(Source source, const Arch& arch);

/// Whether `passes` returns true, which is asked only until it did so of `what`, a text of all that
/// decides it: what passed once passes as in compiled().
bool passed(const std::string& what, const std::function<bool()>& passes);

}  // namespace attnforge::test
