// arch.cpp - the table of compute capabilities (CUDA C++ Programming Guide, "Compute
// Capabilities"), and typical GPUs.
#include "generator/arch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>

#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

constexpr int kKiB = 1024;

constexpr int kRegisters = 65536;

// The fields in order: sm, name; bytes of shared memory per block and per SM; registers, threads
// and blocks per SM; what mma.sync reaches (fp16 or bf16 operands, fp32 accumulation, dense); fp32
// multiply-adds of the CUDA cores; bytes read from L2 (te42kyfo/gpu-benches: A100 35.6, A40 16.7,
// L40 14.8, H200 37.4; the last two as the arch before them); cp_async, tma, wgmma.
constexpr Arch kArchs[] = {
    {80, "80", 163 * kKiB, 164 * kKiB, kRegisters, 2048, 32, 1024, 64, 36, true, false, false},
    // GeForce halves the rate with fp32 accumulation; see arch_of_board().
    {86, "86", 99 * kKiB, 100 * kKiB, kRegisters, 1536, 16, 256, 128, 17, true, false, false},
    // GeForce again: an RTX 4090 has 165 TFLOP/s with 128 SMs at 2.52 GHz. L4 and L40S have 512.
    {89, "89", 99 * kKiB, 100 * kKiB, kRegisters, 1536, 24, 256, 128, 15, true, false, false},
    // mma.sync reaches about 62 percent of the 2048 that wgmma has.
    {90, "90a", 227 * kKiB, 228 * kKiB, kRegisters, 2048, 32, 1270, 128, 37, true, true, true},
    // The full rate needs tcgen05; mma.sync has that of sm_80.
    {100, "100a", 227 * kKiB, 228 * kKiB, kRegisters, 2048, 32, 1024, 128, 37, true, true, false},
    {103, "103a", 227 * kKiB, 228 * kKiB, kRegisters, 2048, 32, 1024, 128, 37, true, true, false},
    // GeForce: an RTX 5090 has 209 TFLOP/s with 170 SMs at 2.41 GHz. RTX PRO 6000 has 512.
    {120, "120a", 99 * kKiB, 100 * kKiB, kRegisters, 1536, 24, 256, 128, 15, true, true, false},
};

struct TypicalGpu {
  std::string_view name;
  int num_sms;
  std::int64_t l2_mib, memory_mib;
  int sm_clock_mhz, memory_clock_mhz, memory_bus_bits;
};

// In the order of kArchs. Clocks as the driver reports them.
constexpr TypicalGpu kTypical[] = {
    {"NVIDIA A100-SXM4-80GB", 108, 40, 81920, 1410, 1593, 5120},
    {"NVIDIA GeForce RTX 3090", 82, 6, 24576, 1695, 9751, 384},
    {"NVIDIA GeForce RTX 4090", 128, 72, 24564, 2520, 10501, 384},
    {"NVIDIA H200", 132, 60, 143771, 1980, 3201, 6144},
    {"NVIDIA B200", 148, 126, 183359, 1965, 3996, 8192},
    {"NVIDIA B300 SXM6 AC", 148, 126, 275040, 2032, 3996, 8192},
    {"NVIDIA GeForce RTX 5090", 170, 96, 32607, 2407, 14001, 512},
};
static_assert(std::size(kTypical) == std::size(kArchs));

std::vector<DeviceFacts> typical_devices() {
  std::vector<DeviceFacts> devices;
  for (std::size_t i = 0; i < std::size(kArchs); ++i) {
    const TypicalGpu& gpu = kTypical[i];
    DeviceFacts& facts = devices.emplace_back();
    facts.arch = kArchs[i];
    facts.name = gpu.name;
    facts.num_sms = gpu.num_sms;
    facts.l2_bytes = gpu.l2_mib << 20;
    facts.memory_bytes = gpu.memory_mib << 20;
    facts.sm_clock_mhz = gpu.sm_clock_mhz;
    facts.memory_clock_mhz = gpu.memory_clock_mhz;
    facts.memory_bus_bits = gpu.memory_bus_bits;
  }
  return devices;
}

// GPUs by what people call them, in small letters without makers and suffixes; longer names before
// those that they begin with. Of each arch those of servers first.
struct NamedGpu {
  std::string_view name;
  int sm;
};
constexpr NamedGpu kNamedGpus[] = {
    {"a100", 80},      {"a800", 80},  {"a30", 80},    {"a10", 86},   {"a40", 86},    {"a6000", 86},
    {"a5000", 86},     {"30", 86},    {"l40", 89},    {"l4", 89},    {"l20", 89},    {"40", 89},
    {"6000 ada", 89},  {"h100", 90},  {"h200", 90},   {"h800", 90},  {"h20", 90},    {"gh200", 90},
    {"b100", 100},     {"b200", 100}, {"gb200", 100}, {"b300", 103}, {"gb300", 103}, {"50", 120},
    {"pro 6000", 120}, {"t4", 75},    {"20", 75},     {"v100", 70},  {"p100", 60}};

bool is_figure(char c) { return c >= '0' && c <= '9'; }

/// Compute capability of a GPU that is called so; 0: none is.
int sm_of_gpu(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const bool capital = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || is_figure(c);
    plain += capital ? static_cast<char>(c - 'A' + 'a') : kept ? c : ' ';
  }
  std::string_view rest = plain;
  for (const std::string_view maker : {"nvidia", "geforce", "tesla", "rtx"}) {
    if (rest.starts_with(maker)) rest.remove_prefix(maker.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  }
  for (const NamedGpu& gpu : kNamedGpus) {
    if (!rest.starts_with(gpu.name)) continue;
    const std::string_view after = rest.substr(gpu.name.size());
    // A row of two digits is a series of GeForce: 4090, 4060ti.
    const bool series = gpu.name.size() == 2 && is_figure(gpu.name[0]);
    if (!series && (after.empty() || !is_figure(after[0]))) return gpu.sm;
    if (series && after.size() >= 2 && is_figure(after[0]) && after[1] == '0' &&
        (after.size() == 2 || !is_figure(after[2])))
      return gpu.sm;
  }
  return 0;
}

constexpr int round_up(int value, int step) { return (value + step - 1) / step * step; }

constexpr int kWarpThreads = 32;
constexpr int kMaxBlockThreads = 1024;
constexpr int kPartitions = 4;  // of an SM; each has its own register file, and a warp lives in one
constexpr int kRegisterGranularity = 256;  // registers are given to a warp in units of this many
constexpr int kMaxThreadRegisters = 255;
constexpr int kSmemGranularityBytes = 128;
constexpr int kSmemReservedBytes = 1024;  // by the system, in every block

}  // namespace

std::span<const Arch> archs() { return kArchs; }

const Arch& arch_named(std::string_view name) {
  std::string_view wanted = name;
  if (wanted.starts_with("sm")) wanted.remove_prefix(2);
  if (wanted.starts_with('_')) wanted.remove_prefix(1);
  for (const Arch& arch : kArchs) {
    if (wanted == arch.name || wanted == std::to_string(arch.sm)) return arch;
  }
  int sm = sm_of_gpu(name);
  if (const Arch* const of_gpu = arch_for_sm(sm); of_gpu != nullptr) return *of_gpu;
  const std::string known = fmt::format("sm_{}", fmt::join(known_archs(), ", sm_"));
  const auto [end, wrong] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), sm);
  const bool older = wrong == std::errc() && end == wanted.data() + wanted.size() && sm >= 10;
  if (sm > 0 && sm < kArchs[0].sm && (older || sm_of_gpu(name) > 0)) {
    throw_error(ErrorCode::kInvalidArgument,
                "arch \"{}\" is older than sm_{}, the first that attnforge has kernels for; "
                "known are {}",
                name, kArchs[0].sm, known);
  }
  throw_error(ErrorCode::kInvalidArgument,
              "unknown arch \"{}\"; known are {}, and GPUs such as H100, A10 or 4090", name, known);
}

Arch arch_of_board(Arch arch, std::string_view name) {
  // Boards of the same silicon as GeForce that are not GeForce; L20 is as GeForce is.
  constexpr int kHalved = 256;
  const bool halved = name.empty() || name.find("GeForce") != std::string_view::npos ||
                      name.find(" L20") != std::string_view::npos;
  if (arch.mma_fma_per_clock_per_sm == kHalved && !halved) arch.mma_fma_per_clock_per_sm *= 2;
  return arch;
}

const Arch* arch_for_sm(int sm) {
  // Code for 8.6 runs on 8.7 and 8.8. Code for an arch with a feature letter runs on that arch
  // alone.
  if (sm == 87 || sm == 88) sm = 86;
  const Arch* found = std::ranges::find(kArchs, sm, &Arch::sm);
  return found == std::end(kArchs) ? nullptr : found;
}

std::vector<std::string_view> known_archs() {
  std::vector<std::string_view> names;
  for (const Arch& arch : kArchs) names.push_back(arch.name);
  return names;
}

const DeviceFacts& typical_device(std::string_view arch) {
  static const std::vector<DeviceFacts> devices = typical_devices();
  return devices[&arch_named(arch) - kArchs];
}

int blocks_per_sm(const Arch& arch, int registers, int threads, int smem_bytes) {
  if (threads < 1 || threads > kMaxBlockThreads || registers > kMaxThreadRegisters ||
      smem_bytes < 0 || smem_bytes > arch.smem_per_block_bytes) {
    return 0;
  }
  const int warps = (threads + kWarpThreads - 1) / kWarpThreads;
  const int warp_registers = round_up(std::max(registers, 1) * kWarpThreads, kRegisterGranularity);
  const int by_registers = arch.registers_per_sm / kPartitions / warp_registers * kPartitions /
                           warps;
  const int by_smem = arch.smem_per_sm_bytes /
                      round_up(smem_bytes + kSmemReservedBytes, kSmemGranularityBytes);
  const int by_threads = arch.max_threads_per_sm / (warps * kWarpThreads);
  return std::min({by_registers, by_smem, by_threads, arch.max_blocks_per_sm});
}

std::string device_class(const DeviceFacts& facts) {
  std::string text = fmt::format("{} sm_{} sms={} memory_clock_mhz={} l2_bytes={}", facts.name,
                                 facts.arch.name, facts.num_sms, facts.memory_clock_mhz,
                                 facts.l2_bytes);
  if (!facts.mig_profile.empty()) text += " mig=" + facts.mig_profile;
  return text;
}

}  // namespace attnforge
