// run_files.cpp - parts that are files of run alone: the tables of a rope, numbers of heads, scales
// of k and v, and the gradients of o and lse with those of inputs.
#include <span>
#include <tuple>
#include <utility>

#include "cli/files/npy.h"
#include "cli/parts/part.h"
#include "cli/parts/tensors.h"
#include "cli/refuse.h"
#include "cli/verbs/memory_check.h"

namespace attnforge::cli {

std::vector<float> read_rope_table(const std::string& path, const Problem& problem) {
  const std::int64_t pairs = effective_rope_dim(problem) / 2;
  const std::int64_t shape[] = {kAnySize, pairs};
  return values_of<float>(
      read_npy(path, shape, fmt::format("float32 [rows, {}] for rope_dim={}", pairs, 2 * pairs)));
}

namespace {

class RopeFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    add_value(verb, "--rope-cos NPY", cos_, "Cosines of a rope: float32 [rows, rope_dim / 2]");
    add_value(verb, "--rope-sin NPY", sin_, "Sines");
    add_number(verb, "--rope-offset N", offset_, "Row of the tables that the first key takes");
  }
  const char* help() const override {
    return "Tables of a rope are float32 [rows, rope_dim / 2]; without them they are those of base "
           "10000, as many rows\nas the problem takes.\n";
  }
  void check(const Problem& problem, const RunFlags&) const override {
    if (cos_.empty() != sin_.empty())
      refuse(kInvalidArgument, "--rope-cos and --rope-sin belong together; give both or none");
    if (problem.rope == Rope::kNone && (!cos_.empty() || offset_ >= 0)) {
      refuse(kInvalidArgument,
             "--rope-cos, --rope-sin and --rope-offset need a problem with rope=half or "
             "rope=interleaved");
    }
    if (offset_ < 0) return;
    check_rope_offset(problem, offset_);
    if (!cos_.empty()) return;
    const auto rows = static_cast<double>(offset_) + static_cast<double>(problem.seqlen_kv);
    require_host_bytes("tables of the rope up to the rows of --rope-offset",
                       rows * effective_rope_dim(problem) * sizeof(float));
  }
  void take(const Problem& problem, const RunFlags&, HostTensors& host) const override {
    if (cos_.empty()) {
      if (offset_ >= 0) set_rope_tables(problem, host, 10000, offset_);
      return;
    }
    if (offset_ >= 0) host.rope_offset = offset_;
    host.rope_cos = read_rope_table(cos_, problem);
    host.rope_sin = read_rope_table(sin_, problem);
  }

 private:
  std::string cos_, sin_;
  std::int64_t offset_ = -1;  // -1: not given
};

/// An option for each of head_numbers().
class HeadFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    for (std::size_t i = 0; i < all_.size(); ++i)
      add_value(verb, fmt::format("--{} NPY", all_[i].name), files_[i],
                fmt::format("Of the word {}: float32 [num_heads_q], {} each", all_[i].word,
                            all_[i].what));
  }
  void check(const Problem& problem, const RunFlags& flags) const override {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const HeadNumbers& of = all_[i];
      if (!of.in(problem) && !files_[i].empty())
        refuse(kInvalidArgument, "--{} needs a problem with the word {}", of.name, of.word);
      if (of.in(problem) && files_[i].empty() && !flags.random)
        refuse(kInvalidArgument, "--{} is missing: the word {} takes {} for each query head",
               of.name, of.word, of.what);
    }
  }
  void take(const Problem& problem, const RunFlags&, HostTensors& host) const override {
    const std::int64_t shape[] = {problem.num_heads_q};
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (!files_[i].empty())
        host.*all_[i].host = values_of<float>(read_npy(files_[i], shape, "float32 [num_heads_q]"));
  }

 private:
  std::vector<HeadNumbers> all_ = head_numbers();
  std::vector<std::string> files_ = std::vector<std::string>(all_.size());
};

class ScaleFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    add_value(verb, "--k-scale NPY", k_,
              "Scales of k as the word kv_scale says: float32, contiguous, in the order of k");
    add_value(verb, "--v-scale NPY", v_, "Of v");
    add_value(verb, "--q-scale NPY", q_, "Of q of e4m3");
  }
  const char* help() const override {
    return "Files of k and v may be int8, uint8 of two int4 (low half first) or, with k=q8_0, of "
           "blocks, or float8_e4m3fn and float8_e5m2 of ml_dtypes.\n";
  }
  void check(const Problem& problem, const RunFlags& flags) const override {
    const bool scaled = problem.kv_scale != KvScale::kNone;
    for (const auto& [option, path, dtype] : {std::tuple("--k-scale", &k_, problem.dtype_k),
                                              {"--v-scale", &v_, problem.dtype_v},
                                              {"--q-scale", &q_, problem.dtype_q}}) {
      const bool has = scaled && is_low_bit(dtype);
      if (!has && !path->empty())
        refuse(kInvalidArgument, "{} {}", option,
               is_low_bit(dtype) ? "needs a word that says what has a scale, such as kv_scale=token"
                                 : "goes with a tensor of 8 or 4 bits alone; leave it out");
      if (has && path->empty() && !flags.random)
        refuse(kInvalidArgument, "{} is missing: kv_scale={} takes scales", option,
               to_string(problem.kv_scale));
    }
  }
  void take(const Problem&, const RunFlags&, HostTensors& host) const override {
    read(k_, host.k_scale);
    read(v_, host.v_scale);
    read(q_, host.q_scale);
  }

 private:
  /// Of any shape with as many numbers as `to` has.
  static void read(const std::string& path, std::vector<float>& to) {
    if (path.empty()) return;
    const NpyArray file = read_npy(path);
    std::vector<float> scales = values_of<float>(read_npy(path, file.header.shape, "float32"));
    if (scales.size() != to.size())
      refuse(kInvalidProblem, "{}: its shape {} has {} numbers in place of {}", path,
             shape_text(file.header.shape), scales.size(), to.size());
    to = std::move(scales);
  }

  std::string k_, v_, q_;
};

class GradientFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    add_value(verb, "--dout NPY", dout_, "Of bwd: the gradient of o");
    add_value(verb, "--dlse NPY", dlse_,
              "Of bwd with the word dlse: the gradient of lse, as float32");
    add_value(verb, "--dq NPY", dq_, "Of bwd: where the gradient of q goes");
    add_value(verb, "--dk NPY", dk_, "Of k");
    add_value(verb, "--dv NPY", dv_, "Of v");
    add_value(verb, "--dsinks NPY", dsinks_, "Where dsinks goes: float32 [num_heads_q]");
  }
  const char* help() const override {
    return "Of a bwd, o and lse are computed by a forward run first, and may be written too; dout, "
           "and dlse of that word, is\nrandom with --random or a file.\n";
  }
  std::string examples(std::string_view verb) const override {
    if (verb != "run") return "";
    return "  attnforge run --random 1 --dq dq.npy bwd bf16 num_heads=16 seqlen=1024 head_dim=128 "
           "causal\n";
  }
  /// Files for gradients belong to bwd, and not to a tensor that has all three.
  void check(const Problem& problem, const RunFlags& flags) const override {
    const bool backward = is_backward(problem);
    const bool written = !dq_.empty() || !dk_.empty() || !dv_.empty() || !dsinks_.empty();
    const std::pair<bool, const char*> mistakes[] = {
        {!backward && (written || !dout_.empty() || !dlse_.empty()),
         "--dout, --dlse, --dq and the like need a problem that begins with bwd"},
        {backward && problem.accumulate && flags.check,
         "--check does not go with the word accumulate, whose gradients are added to others"},
        {backward && problem.layout == Layout::kPackedQkv && written,
         "--dq, --dk and --dv do not go with layout=packed_qkv"},
        {backward && dout_.empty() && !flags.random,
         "--dout is missing: a bwd takes the gradient of o"},
        {backward && problem.dlse && dlse_.empty() && !flags.random,
         "--dlse is missing: the word dlse takes the gradient of lse"},
        {backward && !problem.dlse && !dlse_.empty(), "--dlse needs a problem with the word dlse"}};
    for (const auto& [made, mistake] : mistakes)
      if (made) refuse(kInvalidArgument, "{}", mistake);
  }
  void take(const Problem& problem, const RunFlags& flags, HostTensors& host) const override {
    if (!dsinks_.empty() && host.dsinks.empty())
      refuse(kInvalidArgument, "--dsinks: the problem has no dsinks");
    if (!dlse_.empty()) {
      const std::vector<std::int64_t> shape = lse_shape(problem);
      host.dlse = values_of<float>(
          read_npy(dlse_, shape, fmt::format("float32 {}, the shape of lse", shape_text(shape))));
    }
    if (dout_.empty()) return;
    NpyArray file = read_npy(dout_);
    if (file.header.shape != output_shape(problem)) {
      refuse(kInvalidArgument, "{}: its shape is {}, and that of o {}", dout_,
             shape_text(file.header.shape), shape_text(output_shape(problem)));
    }
    const DType dtype = npy_dtype(file.header, flags.uint16_is_bf16, dout_);
    host.dout = converted(std::move(file), dtype, problem.dtype_o);
  }
  /// In one dtype each: that of the problem.
  void write(const Problem& p, const RunFlags& flags, const HostTensors& host) const override {
    const auto write = [&](const std::string& path, const std::vector<std::byte>& values,
                           DType input, bool of_keys, std::int64_t heads, std::int64_t dim) {
      if (path.empty()) return;
      write_npy(path, npy_descr(gradient_dtype(p, input), flags.uint16_is_bf16),
                file_shape(p, of_keys, heads, dim), values);
    };
    write(dq_, host.dq, p.dtype_q, false, p.num_heads_q, p.head_dim);
    write(dk_, host.dk, p.dtype_k, true, p.num_heads_kv, p.head_dim);
    write(dv_, host.dv, p.dtype_v, true, p.num_heads_kv, p.head_dim_v);
    const std::int64_t heads[] = {p.num_heads_q};
    if (!dsinks_.empty()) write_npy(dsinks_, "<f4", heads, std::as_bytes(std::span(host.dsinks)));
  }

 private:
  std::string dout_, dlse_, dq_, dk_, dv_, dsinks_;
};

}  // namespace

std::unique_ptr<RunPart> rope_part() { return std::make_unique<RopeFiles>(); }
std::unique_ptr<RunPart> head_part() { return std::make_unique<HeadFiles>(); }
std::unique_ptr<RunPart> scale_part() { return std::make_unique<ScaleFiles>(); }
std::unique_ptr<RunPart> gradient_part() { return std::make_unique<GradientFiles>(); }

}  // namespace attnforge::cli
