// device_words.cpp - what drivers, compilers and other processes say: names of GPUs and their
// classes, logs of NVRTC and ptxas, owners of leases.
#include "cache/file/process.h"
#include "cache/rows.h"
#include "generator/arch.h"
#include "runtime/compile/compile_log.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {
namespace {

void check_class(const DeviceFacts& facts) {
  const std::string text = device_class(facts);
  require(text.find(facts.name) == 0, "a class without its GPU's name");
  const int sm = sm_of_device_class(text);
  require(sm >= 0 && sm < 10000, "sm of " + text);
  // A name may hold a word that looks like an arch; most do not.
  if (facts.name.find("sm") == std::string::npos)
    require(sm == facts.arch.sm, "sm " + std::to_string(sm) + " of " + text);
}

void check_log(const std::string& text) {
  const CompileLog log = read_compile_log(text);
  require(log.remarks.size() <= text.size() + 1, "remarks that are longer than the log");
  for (const std::size_t most : {0, 1, 100, 4096})
    require(first_errors(text, most).size() <= most, "more of the errors than asked for");
  require(build_id_of_ptx(text).size() <= text.size(), "an id that is longer than its text");
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string text = text_of(data, size);
  const int sm = sm_of_device_class(text);
  require(sm >= 0 && sm < 10000, "sm " + std::to_string(sm));
  check_log(text);
  Bytes bytes(data, size);
  DeviceFacts facts = typical_device(bytes.among(known_archs()));
  facts.num_sms = static_cast<int>(bytes.odd_number());
  facts.memory_clock_mhz = static_cast<int>(bytes.odd_number());
  facts.mig_profile = bytes.text(16);
  facts.name = text;
  check_class(facts);

  const ProcessName here = this_process();
  ProcessName other = here;
  require(!is_dead(here), "this process is dead");
  other.pid = bytes.odd_number();
  is_dead(other);
  other = here;
  other.start = bytes.odd_number();
  require(is_dead(other) == (other.start != 0 && other.start != here.start),
          "a pid that started at another time");
  other.boot_id = bytes.text(40);
  require(other.boot_id == here.boot_id || !is_dead(other), "known of another boot");
  return sm > 0 ? 1 : 0;
}

std::vector<std::string> corpus() {
  return {
      "NVIDIA H200 sm_90a sms=132 memory_clock_mhz=3201 l2_bytes=62914560",
      "NVIDIA A100-SXM4-80GB sm_80 sms=108 mig=1g.10gb",
      "ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
      "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 2 barriers, 16 bytes smem\n",
      "f.cu(3): error: expected a \";\"\n  int x\n        ^\n1 error detected in the compilation\n",
      "//\n// Compiler Build ID: CL-36424714\n// Cuda compilation tools\n"};
}

std::vector<std::string> words() {
  return {"sm_90a",
          "sm_80",
          "sm90a",
          "sms=132",
          "sm",
          "Used",
          " registers",
          "ptxas info    :",
          " bytes spill stores",
          " bytes spill loads",
          " bytes stack frame",
          " bytes smem",
          "error:",
          "): error #",
          "warning :",
          "\n",
          "Compiler Build ID:",
          "wgmma",
          "serialized"};
}

}  // namespace attnforge::fuzz
