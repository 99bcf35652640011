// engine.cpp - an engine whose lengths change with every step: two plans made once, for the most
// that a step may hold, serve all steps. A step writes its lengths to the GPU and runs; nothing is
// planned, allocated or read back for it, so that a CUDA graph of a step could be replayed too.
//
// To show what each query saw, q and k are zero here: a row's lse, the logarithm of the sum of
// exp(score) over its keys, is then the logarithm of their number.
#include <attnforge/device_memory.h>
#include <attnforge/error.h>
#include <attnforge/plan.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace attnforge;

constexpr int kSlots = 4, kHeads = 8, kHeadsKv = 2, kHeadDim = 64;
constexpr int kPromptTokens = 1024;  // the most of a prefill step, all prompts together
constexpr int kCacheRows = 512;      // of each slot's K and V

/// Zeroed tensors of bf16, [rows, heads, kHeadDim], and lse, fp32 [rows, heads] in any order.
struct Memory {
  Memory(Device& device, std::size_t rows_q, std::size_t rows_kv)
      : q(device, rows_q * kHeads * kHeadDim * 2),
        k(device, rows_kv * kHeadsKv * kHeadDim * 2),
        v(device, rows_kv * kHeadsKv * kHeadDim * 2),
        o(device, rows_q * kHeads * kHeadDim * 2),
        lse(device, rows_q * kHeads * sizeof(float)) {
    for (DeviceBuffer* each : {&q, &k, &v}) each->fill(0);
  }
  void bind(Tensors& tensors) const {
    tensors.q.data = q.data();
    tensors.k.data = k.data();
    tensors.v.data = v.data();
    tensors.o.data = o.data();
    tensors.lse.data = static_cast<float*>(lse.data());
  }
  DeviceBuffer q, k, v, o, lse;
};

/// `rows` are those of lse that belong to the last query of each sequence.
void print_keys_seen(const char* step, const DeviceBuffer& lse, const std::vector<int>& rows) {
  std::vector<float> host(lse.size_bytes() / sizeof(float));
  lse.download(host.data(), lse.size_bytes());  // waits for the stream: for this print alone
  std::string line;
  for (int row : rows) line += " " + std::to_string(std::lround(std::exp(host[row])));
  std::printf("%s: keys seen%s\n", step, line.c_str());
}

void serve() {
  Device device;

  // ---- 1. Plans for bounds. Prompts are packed one after another, without padding; a decode step
  // has one new token a slot, and K and V of which only the first rows count ----
  const std::string heads = "fwd bf16 batch=4 num_heads=8:2 head_dim=64 causal lse ";
  const Plan prefill = make_plan(parse_problem(heads + "seqlen=512 lengths=packed tokens=1024"),
                                 device);
  const Plan decode = make_plan(parse_problem(heads + "seqlen=1:512 lengths=used"), device);

  // ---- 2. All memory. Both plans run on one stream, so one workspace serves them ----
  const Memory prompts(device, kPromptTokens, kPromptTokens);
  const Memory cache(device, kSlots, std::size_t{kSlots} * kCacheRows);
  DeviceBuffer workspace(device, std::max(prefill.workspace_bytes(), decode.workspace_bytes()));
  DeviceBuffer begins(device, (kSlots + 1) * sizeof(int));  // cu_seqlens: where each prompt begins
  DeviceBuffer used(device, kSlots * sizeof(int));          // rows of each slot's cache
  Tensors packed = contiguous_tensors(prefill.problem());
  Tensors padded = contiguous_tensors(decode.problem());
  prompts.bind(packed);
  cache.bind(padded);
  const int* const begins_on_gpu = static_cast<const int*>(begins.data());
  packed.lengths = {.q = begins_on_gpu, .kv = begins_on_gpu};
  padded.lengths = {.kv = static_cast<const int*>(used.data())};

  // ---- 3. Prefill: any number of prompts up to kSlots, of any lengths up to 512. Slots without a
  // prompt are empty sequences at the end ----
  std::vector<int> lengths;  // of the context of each slot
  for (const std::vector<int>& step : {std::vector{17, 5, 300}, std::vector{512, 1, 64, 200}}) {
    lengths = step;
    lengths.resize(kSlots, 0);
    std::vector<int> cu_seqlens = {0}, last_rows;
    for (int length : lengths) cu_seqlens.push_back(cu_seqlens.back() + length);
    for (std::size_t i = 0; i < step.size(); ++i) last_rows.push_back(cu_seqlens[i + 1] - 1);
    begins.upload(cu_seqlens.data(), begins.size_bytes());  // an engine's scheduler may be a kernel
    prefill.run(packed, workspace.data());
    print_keys_seen("prefill", prompts.lse, last_rows);  // of head 0: lse is [heads, tokens]
  }

  // ---- 4. Decode: every slot sees one row more with each step; the first slot ends early ----
  lengths[0] = 0;
  for (int step = 0; step < 3; ++step) {
    for (int& length : lengths) length += length > 0;
    used.upload(lengths.data(), used.size_bytes());
    decode.run(padded, workspace.data());
    print_keys_seen("decode", cache.lse, {0, kHeads, 2 * kHeads, 3 * kHeads});  // [slots, heads, 1]
  }
}

}  // namespace

int main() {
  try {
    serve();
    return 0;
  } catch (const attnforge::Error& error) {  // says what was wrong and what to do
    std::fprintf(stderr, "engine: %s\n", error.what());
    return 1;
  }
}
