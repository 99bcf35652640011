// faulty_family.h - fwd_naive with a fault, to see that each kind is found. Only for tests.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/error.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge::testing {

struct Fault {
  std::string_view name;
  /// Runs in thread 0 of block 0 after the kernel's own work on row 0 of head 0. `p` is the
  /// FwdParams; o has 16-bit elements.
  std::string_view code;
};

enum class FaultKind {
  kPastEnd,
  kBeforeStart,
  kPastEndOfLse,
  kUnwritten,
  kUnwrittenLse,
  kWrong,
  kWrongLse,
  kNan,
  kInputChanged,
  kSecondRun,
  kSyntax,
  kSharedMemory,
  kSlow,
  kIllegal,
  kOtherBits,
  kFarWrite,
  kEndless,
  kBarrier,
  kCount
};

inline constexpr std::array<Fault, static_cast<std::size_t>(FaultKind::kCount)> kFaults = {{
    {"past_end", "static_cast<unsigned short*>(fwd.o.data)[fwd.batch * fwd.o.stride_batch] = 0;"},
    {"before_start", "static_cast<unsigned short*>(fwd.o.data)[-1] = 0;"},
    {"past_end_of_lse", "fwd.lse[fwd.batch * fwd.lse_stride_batch] = 0;"},
    // What an element holds that was never written.
    {"unwritten", "static_cast<unsigned short*>(fwd.o.data)[3] = 0x7fd5;"},
    {"unwritten_lse", "fwd.lse[0] = __uint_as_float(0x7fd57fd5u);"},
    {"wrong", "static_cast<unsigned short*>(fwd.o.data)[5] ^= 0x8000;"},
    {"wrong_lse", "fwd.lse[0] += 0.01f;"},
    {"nan", "static_cast<unsigned short*>(fwd.o.data)[7] = 0x7fff;"},
    {"input_changed", "static_cast<unsigned short*>(fwd.k.data)[0] += 1;"},
    {"second_run", "if (runs++ > 0) static_cast<unsigned short*>(fwd.o.data)[5] ^= 0x8000;"},
    {"syntax", "this is not C++;"},
    {"shared_memory", ""},
    {"slow",
     "const attnforge::u64 t = attnforge_test_ns(); while (attnforge_test_ns() - t < "
     "4000000000ull) {}"},
    {"illegal", "*reinterpret_cast<volatile int*>(16) = 1;"},
    {"other_bits", "static_cast<unsigned short*>(fwd.o.data)[5] ^= runs++ & 1;"},
    {"far_write", "static_cast<volatile unsigned short*>(fwd.o.data)[1ll << 40] = 0;"},
    {"endless", "while (*reinterpret_cast<volatile int*>(&runs) >= 0) {}"},
    // Of an arrival that nobody makes.
    {"barrier", "attnforge_test_wait();"},
}};

/// fwd_naive's source with `code` in it.
inline Source with_fault(const Config& config, const Problem& problem, std::string_view code) {
  Source source = find_family("fwd_naive")->render(config, problem);
  const std::string_view call = "::run(p);\n}\n";
  const std::size_t at = source.text.rfind(call);
  ATTNFORGE_ASSERT(at != std::string::npos, "fwd_naive's entry point ends with a call of run");
  const std::string fault =
      "::run(p); __syncthreads(); if (blockIdx.x == 0 && threadIdx.x == 0) { "
      "const attnforge::FwdParams& fwd = p.fwd; " +
      std::string(code) + " } }\n";
  source.text.replace(at, call.size(), fault);
  source.text =
      "__device__ int runs;\n"
      "__device__ unsigned long long attnforge_test_ns() {\n"
      "  unsigned long long ns; asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(ns)); return "
      "ns;\n}\n"
      "__device__ void attnforge_test_wait() {\n"
      "  __shared__ unsigned long long barrier;\n"
      "  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));\n"
      "  asm volatile(\"mbarrier.init.shared.b64 [%0], 1;\" :: \"r\"(at) : \"memory\");\n"
      "  for (unsigned done = 0; done == 0;)\n"
      "    asm volatile(\"{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; \"\n"
      "                 \"selp.u32 %0, 1, 0, p; }\" : \"=r\"(done) : \"r\"(at) : "
      "\"memory\");\n}\n" +
      source.text;
  source.code.clear();  // it has no fault: by its digest fwd_naive itself would be compiled
  return source;
}

template <FaultKind kKind>
Source render_faulty(const Config& config, const Problem& problem) {
  return with_fault(config, problem, kFaults[static_cast<std::size_t>(kKind)].code);
}

template <FaultKind kKind>
Launch launch_faulty(const Config& config, const Problem& problem, const DeviceFacts& device) {
  Launch launch = find_family("fwd_naive")->launch(config, problem, device);
  if (kKind == FaultKind::kSharedMemory) launch.steps.front().smem_bytes = 1 << 20;
  return launch;
}

/// fwd_naive with a fault; features, axes and the rest are its own.
template <FaultKind kKind>
const Family& faulty_family() {
  static const Family family = [] {
    Family result = *find_family("fwd_naive");
    result.name = kFaults[static_cast<std::size_t>(kKind)].name;
    result.render = render_faulty<kKind>;
    result.launch = launch_faulty<kKind>;
    result.illegal = [](const Config&, const Problem&, const DeviceFacts&) {
      return std::string();
    };
    return result;
  }();
  return family;
}

/// The first config of fwd_naive under the faulty family's name.
template <FaultKind kKind>
Candidate faulty_candidate(const Problem& problem, const DeviceFacts& device) {
  Candidate result = candidates(*find_family("fwd_naive"), problem, device).front();
  result.family = &faulty_family<kKind>();
  result.config.family = result.family->name;
  return result;
}

}  // namespace attnforge::testing
