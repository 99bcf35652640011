// block_mask.cpp - block masks of commands: from .npy files, random ones, or found on the GPU of
// the problem's mask text; and sweeps over densities.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "attnforge/device_block_mask.h"
#include "attnforge/device_memory.h"
#include "cli/options/problems.h"
#include "cli/parts/block_mask_files.h"
#include "cli/parts/part.h"
#include "cli/parts/user_code.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

/// A number from 0 to 1; none: the text is another.
std::optional<double> share_of(const std::string& text) {
  const std::optional<double> share = number_in<double>(text);
  return share && *share >= 0 && *share <= 1 ? share : std::nullopt;
}

/// --mask-random's word.
ValueRule share() {
  const auto check = [](const std::string& value) {
    return share_of(value) ? "" : fmt::format("must be a number from 0 to 1, not \"{}\"", value);
  };
  return ValueRule(check, "");
}

/// One of --density.
double density_of(const std::string& text) {
  if (const std::optional<double> density = share_of(text)) return *density;
  refuse(kInvalidArgument, "--density {} must be shares from 0 to 1, as in 0,0.5,0.9", text);
}

class MaskPart : public RunPart {
 public:
  void add_table_options(Command& verb) override {
    auto* files = add_value(verb, "--bsr NPY[,NPY]", bsr_,
                            "The block mask: runs, blocks or pairs, or row_begin,columns");
    add_value(verb, "--mask-random DENSITY", random_,
              "A random block mask in which this share of the blocks is present")
        ->check(share())
        ->excludes(files);
  }
  void add_sweep_options(Command& verb) override {
    add_value(verb, "--density SHARES", densities_,
              "Also with random block masks in which these shares of the blocks are present")
        ->check(names());
    add_value(verb, "--block SIZES", blocks_, "Sizes of their blocks: 16, 32, 64, 128 or 128:64")
        ->check(names());
  }
  const char* help() const override {
    return R"(--bsr reads a block mask: int32 [rows, 2], a run of block columns (first, count) for each row of blocks; bool [rows, columns],
which blocks are present; bool [seqlen_q, seqlen_kv], which pairs are seen; or two files, row_begin.npy,columns.npy.
With the word blocks and a mask text, but neither --bsr nor --mask-random, the blocks are found of the text on the GPU.
)";
  }
  std::string examples(std::string_view verb) const override {
    if (verb == "inspect") {
      return R"(  attnforge inspect --mask-random 0.2 --arch sm_90a fwd bf16 num_heads=16 seqlen=4096 head_dim=128 blocks=64
)";
    }
    return R"(  attnforge run --random 1 --bsr schedule.npy fwd fp16 num_heads=8 seqlen=1024 head_dim=128 blocks=16
  attnforge run --random 1 --mask-random 0.25 fwd bf16 num_heads=16 seqlen=8192 head_dim=128 blocks=64 causal
  attnforge run --random 1 --mask 'k <= q && q - k < window' --arg window=1024 fwd bf16 num_heads=16 seqlen=8192 head_dim=128 blocks=128
)";
  }

  Problem completed(const Problem& problem, std::uint64_t seed) override {
    if (!bsr_.empty()) {
      mask_ = mask_from_files(problem, names_of(bsr_));
    } else if (random_ >= 0) {
      mask_ = mask_of_density(problem, random_, seed);
    }
    return mask_ ? with_block_mask(problem, *mask_) : problem;
  }
  /// The problem as it is, then with random blocks of each size and density.
  std::vector<Problem> swept(const Problem& problem) const override {
    std::vector<Problem> all = {problem};
    if (blocks_.empty() && densities_.empty()) return all;
    for (const std::string& block : names_of(blocks_.empty() ? "128" : blocks_)) {
      const std::string words = to_string(problem) + " blocks=" + block;
      for (const std::string& density : names_of(densities_.empty() ? "0.5" : densities_)) {
        Problem masked = parse_problem(words);
        // A density of 0 is that of the diagonal alone.
        constexpr double kLeast = 1e-6;
        masked.density = static_cast<float>(std::max(kLeast, density_of(density)));
        validate(masked);
        all.push_back(masked);
      }
    }
    return all;
  }

  void check(const Problem& problem, const RunFlags& flags) const override {
    if (finds(problem) && !flags.on_gpu) {
      refuse(kInvalidArgument,
             "the blocks of a mask text are found on the GPU; with --cpu leave out blocks=, the "
             "text alone is the same mask, or say which blocks with --bsr or --mask-random");
    }
    if (flags.random || !has_block_mask(problem) || mask_ || finds(problem)) return;
    refuse(kInvalidArgument,
           "the problem has a block mask; say which with --bsr, --mask-random or a mask text");
  }
  void take(const Problem& problem, const RunFlags&, HostTensors& host) const override {
    if (mask_) set_block_mask(problem, host, *mask_);
  }
  void find(Device& device, Problem& problem, HostTensors& host) const override {
    if (!finds(problem)) return;
    DeviceBuffer arrays(device, host.code_arrays.size());
    arrays.upload(host.code_arrays.data(), host.code_arrays.size());
    const std::vector<std::uint64_t> words = code_words_at(problem, host, arrays.data());
    const BlockMask mask = download_block_mask(block_mask_from_text(device, problem, words.data()));
    problem = with_block_mask(problem, mask);
    set_block_mask(problem, host, mask);
  }
  std::string report(const Problem& problem, const HostTensors& host) const override {
    if (!has_block_mask(problem)) return "";
    return fmt::format("block mask    {}\n", counts_text(block_mask_of(problem, host)));
  }

  void know(const Problem& problem, KnownTables& known) const override {
    if (mask_) set_block_mask(problem, known.tables, *mask_);
  }
  std::optional<Drawing> drawing(const Problem&) const override {
    if (!mask_) return std::nullopt;
    return Drawing{"Block mask", mask_, false, ""};
  }

 private:
  /// Whether the blocks are those of the problem's mask text.
  bool finds(const Problem& problem) const {
    return has_block_mask(problem) && !problem.mask.empty() && !mask_;
  }

  std::string bsr_, blocks_, densities_;  // "": not given
  double random_ = -1;                    // -1: not given
  std::optional<BlockMask> mask_{};       // what the first two say
};

}  // namespace

std::unique_ptr<RunPart> mask_part() { return std::make_unique<MaskPart>(); }

}  // namespace attnforge::cli
