// gradients.cpp - the gradients of o and lse from files, and those of inputs to files.
#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "cli/files/npy.h"
#include "cli/parts/part.h"
#include "cli/parts/tensors.h"

namespace attnforge::cli {
namespace {

[[noreturn]] void refuse_gradients(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, why);
}

class GradientFiles : public RunPart {
 public:
  void add_options(Command& verb) override {
    verb.add_option("--dout", dout_, "Of bwd: the gradient of o")->type_name("NPY");
    verb.add_option("--dlse", dlse_, "Of bwd with the word dlse: the gradient of lse, as float32")
        ->type_name("NPY");
    verb.add_option("--dq", dq_, "Of bwd: where the gradient of q goes")->type_name("NPY");
    verb.add_option("--dk", dk_, "Of k")->type_name("NPY");
    verb.add_option("--dv", dv_, "Of v")->type_name("NPY");
    verb.add_option("--dsinks", dsinks_, "Where dsinks goes: float32 [num_heads_q]")
        ->type_name("NPY");
  }
  const char* help() const override {
    return "Of a bwd, o and lse are computed by a forward run first, and may be written too; dout, "
           "and dlse "
           "of that word, is\nrandom with --random or a file.\n";
  }
  std::string examples(std::string_view verb) const override {
    if (verb != "run") return "";
    return "  attnforge run --random 1 --dq dq.npy bwd bf16 num_heads=16 seqlen=1024 head_dim=128 "
           "causal\n";
  }
  /// Files for gradients belong to bwd, and not to a tensor that has all three.
  void check(const Problem& problem, const RunFlags& flags) const override {
    const bool written = !dq_.empty() || !dk_.empty() || !dv_.empty() || !dsinks_.empty();
    if (!is_backward(problem)) {
      if (written || !dout_.empty() || !dlse_.empty())
        refuse_gradients("--dout, --dlse, --dq and the like need a problem that begins with bwd");
      return;
    }
    if (problem.accumulate && flags.check)
      refuse_gradients(
          "--check does not go with the word accumulate, whose gradients are added to others");
    if (problem.layout == Layout::kPackedQkv && written)
      refuse_gradients("--dq, --dk and --dv do not go with layout=packed_qkv");
    if (dout_.empty() && !flags.random)
      refuse_gradients("--dout is missing: a bwd takes the gradient of o");
    if (problem.dlse && dlse_.empty() && !flags.random)
      refuse_gradients("--dlse is missing: the word dlse takes the gradient of lse");
    if (!problem.dlse && !dlse_.empty())
      refuse_gradients("--dlse needs a problem with the word dlse");
  }
  void take(const Problem& problem, const RunFlags& flags, HostTensors& host) const override {
    if (!dsinks_.empty() && host.dsinks.empty())
      refuse_gradients("--dsinks: the problem has no dsinks");
    if (!dlse_.empty()) {
      const std::vector<std::int64_t> shape = lse_shape(problem);
      host.dlse = read_floats(dlse_, shape, shape_text(shape) + ", the shape of lse");
    }
    if (dout_.empty()) return;
    NpyArray file = read_npy(dout_);
    if (file.header.shape != output_shape(problem)) {
      refuse_gradients(fmt::format("{}: its shape is {}, and that of o {}", dout_,
                                   shape_text(file.header.shape),
                                   shape_text(output_shape(problem))));
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

std::unique_ptr<RunPart> gradient_part() { return std::make_unique<GradientFiles>(); }

}  // namespace attnforge::cli
