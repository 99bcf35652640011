#include "cli/parts/block_mask.h"

#include <algorithm>

#include "attnforge/device_block_mask.h"
#include "attnforge/device_memory.h"
#include "cli/files/npy.h"
#include "cli/parts/part.h"
#include "cli/parts/user_code.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

constexpr int kBlockSizes[] = {16, 32, 64, 128};

struct MaskFile {
  std::string path;
  NpyArray array;

  const std::vector<std::int64_t>& shape() const { return array.header.shape; }
  bool is_bytes() const { return array.header.descr == "|b1" || array.header.descr == "|u1"; }
  bool is_integers() const { return array.header.descr == "<i4" || array.header.descr == "<i8"; }
  std::string what() const {
    return fmt::format("{} {}", array.header.descr, shape_text(array.header.shape));
  }
  std::vector<int> integers() const {
    if (!is_integers()) refuse(kInvalidArgument, "{}: its {} must be int32 or int64", path, what());
    if (array.header.descr == "<i4") return values_of<int>(array);
    std::vector<int> values;
    for (const std::int64_t value : values_of<std::int64_t>(array)) {
      if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
        refuse(kInvalidArgument, "{}: entry {} is {}, which is not an index", path, values.size(),
               value);
      values.push_back(static_cast<int>(value));
    }
    return values;
  }
  std::vector<std::uint8_t> bytes() const {
    if (!is_bytes()) refuse(kInvalidArgument, "{}: its {} must be bool or uint8", path, what());
    return values_of<std::uint8_t>(array);
  }
};

/// Heads and sequences that may have a mask of their own: as the words say, else the plainest
/// first.
std::vector<std::pair<std::int64_t, std::int64_t>> masks_of(const Problem& p) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all = {{p.mask_heads, p.mask_batch}};
  if (p.mask_heads != 1 || p.mask_batch != 1) return all;
  for (const std::int64_t batch : {std::int64_t{1}, p.batch}) {
    for (const std::int64_t heads : {std::int64_t{1}, p.num_heads_kv, p.num_heads_q})
      all.emplace_back(heads, batch);
  }
  return all;
}

/// The shape of a file with this many rows of blocks.
BlockMaskShape shape_of_rows(const Problem& p, std::int64_t rows, const std::string& path) {
  BlockMaskShape shape{.seqlen_q = p.seqlen_q, .seqlen_kv = p.seqlen_kv};
  for (const auto& [heads, batch] : masks_of(p)) {
    shape.heads = heads;
    shape.batch = batch;
    std::vector<int> fitting;
    for (const int block : kBlockSizes) {
      if (p.mask_block_q != 0 && block != p.mask_block_q) continue;
      shape.block_q = block;
      if (shape.rows() == rows) fitting.push_back(block);
    }
    if (fitting.size() > 1) {
      refuse(kInvalidArgument, "{}: {} rows of blocks may be of {} queries or of {}; say blocks={}",
             path, rows, fitting[0], fitting[1], fitting[0]);
    }
    if (fitting.empty()) continue;
    shape.block_q = fitting.front();
    shape.block_kv = p.mask_block_kv != 0 ? p.mask_block_kv : shape.block_q;
    return shape;
  }
  refuse(kInvalidArgument,
         "{}: {} rows of blocks are not those of seqlen_q={} in blocks of {}, for all heads and "
         "sequences or for each",
         path, rows, p.seqlen_q,
         p.mask_block_q != 0 ? std::to_string(p.mask_block_q) : "16, 32, 64 or 128");
}

std::int64_t product(const std::vector<std::int64_t>& sizes, std::size_t count) {
  std::int64_t all = 1;
  for (std::size_t i = 0; i < count; ++i) all *= sizes[i];
  return all;
}

BlockMask mask_of_pairs(const Problem& p, const MaskFile& file) {
  constexpr int kBlock = 64;
  BlockMaskShape shape{.block_q = p.mask_block_q != 0 ? p.mask_block_q : kBlock,
                       .block_kv = p.mask_block_kv != 0 ? p.mask_block_kv : kBlock,
                       .seqlen_q = p.seqlen_q,
                       .seqlen_kv = p.seqlen_kv};
  const std::int64_t masks = product(file.shape(), file.shape().size() - 2);
  for (const auto& [heads, batch] : masks_of(p)) {
    if (heads * batch != masks) continue;
    shape.heads = heads;
    shape.batch = batch;
    return block_mask_from_dense(shape, file.bytes());
  }
  refuse(kInvalidArgument,
         "{}: its {} masks are neither one for all heads and sequences nor one for each", file.path,
         masks);
}

BlockMask mask_of_blocks(const Problem& p, const MaskFile& file) {
  const auto& sizes = file.shape();
  BlockMaskShape shape = shape_of_rows(p, product(sizes, sizes.size() - 1), file.path);
  for (const int block : kBlockSizes) {
    if (shape.kv_blocks() == sizes.back() || p.mask_block_kv != 0) break;
    shape.block_kv = block;
  }
  return block_mask_from_blocks(shape, file.bytes());
}

BlockMask mask_of_one_file(const Problem& p, const MaskFile& file) {
  const auto& sizes = file.shape();
  if (file.is_integers() && sizes.size() == 2 && sizes[1] == 2)
    return block_mask_from_runs(shape_of_rows(p, sizes[0], file.path), file.integers());
  if (file.is_bytes() && sizes.size() >= 2) {
    const bool pairs = sizes[sizes.size() - 2] == p.seqlen_q && sizes.back() == p.seqlen_kv;
    return pairs ? mask_of_pairs(p, file) : mask_of_blocks(p, file);
  }
  refuse(kInvalidArgument,
         "{}: its {} is not a mask; give int32 [rows, 2] (a run of block columns for each row), "
         "bool [rows, columns] of blocks, bool [seqlen_q, seqlen_kv], or two files: "
         "row_begin.npy,columns.npy",
         file.path, file.what());
}

}  // namespace

BlockMask mask_from_files(const Problem& problem, const std::vector<std::string>& paths) {
  std::vector<MaskFile> files;
  for (const std::string& path : paths) files.push_back({path, read_npy(path)});
  if (files.empty() || files.size() > 3)
    refuse(kInvalidArgument, "--bsr takes one file, or row_begin,columns[,partial], not {}",
           paths.size());
  if (files.size() == 1) return mask_of_one_file(problem, files.front());
  for (const MaskFile& file : files) {
    if (file.shape().size() != 1)
      refuse(kInvalidArgument, "{}: its {} must have one dimension", file.path, file.what());
  }
  const std::vector<int> row_begin = files[0].integers();
  if (row_begin.empty())
    refuse(kInvalidArgument, "{}: it is empty; row_begin has rows + 1", paths[0]);
  const BlockMaskShape shape = shape_of_rows(
      problem, static_cast<std::int64_t>(row_begin.size()) - 1, files[0].path);
  return block_mask_from_bsr(shape, row_begin, files[1].integers(),
                             files.size() == 3 ? files[2].bytes() : std::vector<std::uint8_t>());
}

BlockMask mask_of_density(const Problem& problem, double density, std::uint64_t seed) {
  BlockMaskShape shape{.seqlen_q = problem.seqlen_q, .seqlen_kv = problem.seqlen_kv};
  if (has_block_mask(problem)) shape = block_mask_shape(problem);
  constexpr double kPartial = 0.125;
  return random_block_mask(
      shape, {.density = density, .seed = seed, .partial = problem.mask_bits ? kPartial : 0.0});
}

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

/// From .npy files, random ones, or found on the GPU of the problem's mask text; and sweeps over
/// densities.
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
