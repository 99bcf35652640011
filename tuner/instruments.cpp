#include "tuner/instruments.h"

#include <algorithm>
#include <span>

#include "generator/launch.h"
#include "runtime/compile/compiler.h"
#include "tuner/search/stopping.h"

namespace attnforge {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kBlocksMost = 4096;

template <class Params>
void launch(const Kernel& kernel, const char* symbol, unsigned blocks, unsigned threads,
            const Params& params, CUstream stream) {
  LaunchStep step;
  step.kernel = symbol;
  step.grid.x = blocks;
  step.block.x = threads;
  kernel.launch(step, std::as_bytes(std::span(&params, 1)), stream);
}

/// One thread an element, up to a grid that fills any GPU.
template <class Params>
void launch_over(const Kernel& kernel, const char* symbol, std::size_t count, const Params& params,
                 CUstream stream) {
  if (count == 0) return;
  const std::size_t blocks = std::min((count + kThreads - 1) / kThreads, kBlocksMost);
  launch(kernel, symbol, static_cast<unsigned>(blocks), kThreads, params, stream);
}

static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
unsigned long long* counters_of(std::uint64_t* counters) {
  return reinterpret_cast<unsigned long long*>(counters);
}

std::vector<std::byte> cubin_bytes(const Arch& arch) {
  return compile(instruments_source(), arch).bytes;
}

}  // namespace

Source instruments_source() {
  Source source;
  source.name = "attnforge_instruments";
  source.entry = source.text = instruments_text();
  return source;
}

Instruments::Instruments(const Arch& arch)
    : Instruments(std::span<const std::byte>(cubin_bytes(arch))) {}

Instruments::Instruments(std::span<const std::byte> cubin)
    : words_(Kernel::load(cubin, "attnforge_words", 0)),
      normal_(Kernel::load(cubin, "attnforge_normal", 0)),
      scan_(Kernel::load(cubin, "attnforge_scan", 0)),
      gather_(Kernel::load(cubin, "attnforge_gather", 0)),
      gate_(Kernel::load(cubin, "attnforge_gate", 0)),
      clock_(Kernel::load(cubin, "attnforge_clock", 0)) {}

void Instruments::words(void* data, std::size_t count, std::uint16_t value, CUstream stream,
                        std::uint64_t* different) const {
  const WordsParams params{data, count, counters_of(different), value};
  launch_over(words_, "attnforge_words", count, params, stream);
}

void Instruments::normal(void* data, std::size_t count, DType dtype, const RandomRange& range,
                         std::uint64_t seed, CUstream stream, std::uint64_t* different) const {
  if (is_blocks(dtype))
    count = static_cast<std::size_t>(bytes_of(dtype, static_cast<std::int64_t>(count))) / 2;
  else if (format_of(dtype).bits < 8)
    count /= 2;
  const NormalParams params{.data = data,
                            .count = count,
                            .seed = seed,
                            .different = counters_of(different),
                            .dtype = static_cast<int>(dtype),
                            .mean = range.mean,
                            .deviation = range.deviation};
  launch_over(normal_, "attnforge_normal", count, params, stream);
}

void Instruments::scan(const void* data, std::size_t count, DType dtype, std::uint64_t* counters,
                       CUstream stream) const {
  const ScanParams params{data, count, counters_of(counters), kPoison, static_cast<int>(dtype)};
  launch_over(scan_, "attnforge_scan", count, params, stream);
}

void Instruments::gather(const GatherParams& params, CUstream stream) const {
  const std::size_t count = static_cast<std::size_t>(params.heads) *
                            static_cast<std::size_t>(params.num_rows) *
                            static_cast<std::size_t>(params.width);
  launch_over(gather_, "attnforge_gather", count, params, stream);
}

void Instruments::gate(const GateParams& params, CUstream stream) const {
  launch(gate_, "attnforge_gate", 1, 1, params, stream);
}

void Instruments::stamp_clocks(ClockStamp* stamps, std::size_t count, int num_sms,
                               CUstream stream) const {
  const ClockParams params{stamps, static_cast<unsigned>(count)};
  launch(clock_, "attnforge_clock", 2 * static_cast<unsigned>(num_sms), 32, params, stream);
}

double clock_mhz(const std::vector<ClockStamp>& before, const std::vector<ClockStamp>& after) {
  constexpr double kShortestNs = 100e3;
  std::vector<double> mhz;
  for (std::size_t sm = 0; sm < std::min(before.size(), after.size()); ++sm) {
    if (before[sm].taken == 0 || after[sm].taken == 0) continue;
    const double ns = static_cast<double>(after[sm].ns) - static_cast<double>(before[sm].ns);
    const double cycles = static_cast<double>(after[sm].cycles) -
                          static_cast<double>(before[sm].cycles);
    if (ns >= kShortestNs && cycles > 0) mhz.push_back(1e3 * cycles / ns);
  }
  return mhz.empty() ? 0 : median(mhz);
}

}  // namespace attnforge
