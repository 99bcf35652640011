// run_inputs.cpp - tensors, lengths, tables, lists and logits of any shape and content, in files
// for `attnforge run --cpu` and in vectors for the library: of problems with packed, used and fixed
// lengths, with pages, block masks, ropes, sinks and gradients.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <span>

#include "attnforge/check.h"
#include "attnforge/host_tensors.h"
#include "cli/files/npy.h"
#include "cli/parts/tensors.h"
#include "cli/verbs/verbs.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/any_problem.h"

namespace attnforge::fuzz {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr test::MostSizes kMost = {.batch_bits = 2, .heads_bits = 1, .seqlen_bits = 6};

/// A small one: half of them have pages.
Problem any_small_problem(Bytes& bytes) {
  Problem p = test::any_problem(bytes, kMost);
  const bool blocks = is_blocks(p.dtype_k) || is_blocks(p.dtype_v);  // rows of whole ones
  p.head_dim = blocks ? 32 : 8 * static_cast<int>(bytes.between(1, 3));
  p.head_dim_v = blocks || p.layout == Layout::kPackedQkv || bytes.flag() ? p.head_dim : 16;
  p.rope_dim = std::min(p.rope_dim, p.head_dim);
  if (bytes.flag() && !is_backward(p) && !has_block_mask(p) && p.layout != Layout::kPackedQkv) {
    p.lengths = bytes.among(std::vector{Lengths::kUsed, Lengths::kPacked});
    p.rope = Rope::kNone;
    p.rope_dim = 0;
    p.tokens_kv = 0;
    if (p.lengths == Lengths::kUsed) p.tokens_q = 0;
    p.page_size = bytes.among(std::vector{8, 16, 64, 24});
  }
  test::halve_until_valid(p);
  return p;
}

// ---- Files ----

/// The same, or with another number of dimensions or another extent.
Shape any_shape(Shape shape, Bytes& bytes) {
  if (!bytes.one_in(6)) return shape;
  const std::int64_t extent = bytes.one_in(4) ? std::abs(bytes.odd_number() / 2)
                                              : bytes.between(0, 5);
  if (shape.empty() || bytes.one_in(4)) {
    shape.push_back(extent);
  } else if (bytes.one_in(4)) {
    shape.pop_back();
  } else {
    shape[static_cast<std::size_t>(
        bytes.between(0, static_cast<std::int64_t>(shape.size()) - 1))] = extent;
  }
  return shape;
}

/// As many bytes as the shape says, if that is not much.
std::size_t bytes_of(const Shape& shape, std::size_t item) {
  double all = static_cast<double>(item);
  for (const std::int64_t extent : shape) all *= static_cast<double>(extent);
  return all < 1 << 20 ? static_cast<std::size_t>(all) : 64;
}

/// The arguments of a run, whose files are in a folder.
class Run {
 public:
  explicit Run(Bytes& bytes) : bytes_(bytes) { folder().empty(); }

  void add(const std::string& word) { words_.push_back(word); }
  /// With the content as far as it goes.
  std::string file(const char* descr, const Shape& shape, std::span<const std::byte> content) {
    const std::string path = folder().path(std::to_string(files_++) + ".npy");
    const std::string_view other = bytes_.one_in(12) ? "<f8" : descr;
    const Shape of_file = any_shape(shape, bytes_);
    const std::size_t item = descr[1] == 'b' ? 1 : descr[2] - '0';
    std::vector<std::byte> data(content.begin(), content.end());
    data.resize(bytes_of(of_file, item), std::byte{0x3c});
    cli::write_npy(path, other, of_file, data);
    return path;
  }
  template <class Number>
  std::string file_of(const char* descr, const Shape& shape, std::vector<Number> numbers) {
    if (std::is_same_v<Number, int> && bytes_.one_in(3) && !numbers.empty()) {
      for (int changes = bytes_.byte() % 3; changes >= 0; --changes)
        numbers[bytes_.byte() % numbers.size()] = static_cast<Number>(bytes_.odd_number());
    }
    return file(descr, shape, std::as_bytes(std::span(numbers)));
  }
  const std::vector<std::string>& words() const { return words_; }

 private:
  static const ScratchFolder& folder() {
    static const ScratchFolder scratch;
    return scratch;
  }
  Bytes& bytes_;
  std::vector<std::string> words_ = {"attnforge", "run", "--cpu"};
  int files_ = 0;
};

/// Of which there may be some.
void add_tables(const Problem& p, const HostTensors& host, Bytes& bytes, Run& run) {
  const auto option = [&](const char* name, bool useful, const auto& make) {
    if (bytes.one_in(useful ? 2 : 24)) {
      run.add(name);
      run.add(make());
    }
  };
  const auto ints = [&](const std::vector<int>& numbers, Shape shape) {
    return [&run, numbers, shape] { return run.file_of("<i4", shape, numbers); };
  };
  const auto floats = [&](const std::vector<float>& numbers, Shape shape) {
    return [&run, numbers, shape] { return run.file_of("<f4", shape, numbers); };
  };
  const auto count = [](const auto& numbers) { return static_cast<std::int64_t>(numbers.size()); };
  const bool lengths = p.lengths != Lengths::kFixed;
  option("--lengths-q", lengths, ints(host.lengths_q, {count(host.lengths_q)}));
  option("--lengths-kv", lengths, ints(host.lengths_kv, {count(host.lengths_kv)}));
  option("--page-table", has_pages(p), ints(host.page_table, {p.batch, pages_of_sequence(p)}));
  option("--sinks", p.sinks, floats(host.sinks, {p.num_heads_q}));
  option("--dlse", p.dlse, floats(host.dlse, cli::lse_shape(p)));
  option(
      "--dout", is_backward(p),
      floats(std::vector<float>(host.o.size() / static_cast<std::size_t>(bytes_of(p.dtype_o, 1))),
             cli::output_shape(p)));
  const std::int64_t pairs = std::max<std::int64_t>(1, effective_rope_dim(p) / 2);
  for (const char* table : {"--rope-cos", "--rope-sin"})
    option(table, p.rope != Rope::kNone,
           floats(host.rope_cos, {count(host.rope_cos) / pairs, pairs}));
  const std::int64_t rows = std::max<std::int64_t>(1, count(host.mask_row_begin) - 1);
  option("--bsr", has_block_mask(p), [&]() -> std::string {
    if (bytes.flag()) return run.file_of("<i4", {rows, 2}, std::vector<int>(2 * rows));
    if (bytes.flag()) return run.file("|b1", {p.seqlen_q, p.seqlen_kv}, {});
    std::vector<int> columns = host.mask_columns;
    for (int& column : columns) column /= 2;
    return run.file_of("<i4", {rows + 1}, host.mask_row_begin) + "," +
           run.file_of("<i4", {count(columns)}, columns);
  });
  if (bytes.one_in(16)) {
    run.add("--score");
    run.add("s + a[head]");
    run.add("--arg");
    run.add("a=" + run.file("<f4", {p.num_heads_q}, {}));
    if (bytes.flag()) run.add("args=\"float* a[num_heads_q]\"");
  }
}

/// q, k and v with what the problem says of them, and the words that files do not say.
void add_tensors(const Problem& p, Bytes& bytes, Run& run) {
  const char* const descr = p.dtype_q == DType::kFp32   ? "<f4"
                            : p.dtype_q == DType::kFp16 ? "<f2"
                                                        : "<V2";
  for (const char* option : {"--q", "--k", "--v"}) {
    const bool of_keys = option[2] != 'q';
    const std::int64_t heads = of_keys ? p.num_heads_kv : p.num_heads_q;
    Shape shape = cli::file_shape(p, of_keys, heads, option[2] == 'v' ? p.head_dim_v : p.head_dim);
    if (of_keys && has_pages(p)) shape.insert(shape.begin(), bytes.between(0, 9));
    run.add(option);
    run.add(run.file(descr, shape, {}));
  }
  Problem words = p;  // of them those that the files say are dropped, most of the time
  const std::string text = to_string(words);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool of_files = word.find('=') != word.npos && !word.starts_with("lengths") &&
                          !word.starts_with("layout") && !word.starts_with("rope");
    if (!of_files || bytes.one_in(3)) run.add(word);
    at = end + 1;
  }
}

/// Nothing of what is printed is wanted.
class Silence {
 public:
  Silence() : before_(dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
  ~Silence() {
    std::fflush(stdout);
    dup2(before_, STDOUT_FILENO);
    close(before_);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  int before_;
};

/// Whether something was computed.
bool runs(const std::vector<std::string>& words) {
  cli::Command program("", "attnforge");
  const cli::Verb run = cli::add_run(program);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const Silence silence;
  std::string wrong;
  if (cli::parse(program, static_cast<int>(argv.size()), argv.data(), wrong) !=
      cli::Parsed::kVerb) {
    require_readable(wrong);
    return false;
  }
  int code = -1;
  accepts([&] { code = run(); });
  return code == cli::kExitOk;
}

// ---- Vectors ----

void change(std::vector<int>& numbers, Bytes& bytes) {
  if (!bytes.one_in(3)) return;
  if (bytes.one_in(4)) return numbers.resize(bytes.byte() % 40);
  if (!numbers.empty())
    numbers[bytes.byte() % numbers.size()] = static_cast<int>(bytes.odd_number());
}

/// Whether it was computed and is right.
bool library_computes(const Problem& p, HostTensors host, Bytes& bytes) {
  change(host.lengths_q, bytes);
  change(host.lengths_kv, bytes);
  if (bytes.flag()) accepts([&] { set_random_pages(p, host, 3); });
  change(host.page_table, bytes);
  change(host.mask_row_begin, bytes);
  change(host.mask_columns, bytes);
  change(host.mask_bit_blocks, bytes);
  if (has_pages(p) && bytes.one_in(6)) {
    const std::int64_t pages = bytes.between(0, 5);
    const std::int64_t row = pages * p.page_size * p.num_heads_kv;
    host.k.resize(static_cast<std::size_t>(row * p.head_dim * bytes_of(p.dtype_k, 1)));
    host.v.resize(static_cast<std::size_t>(row * p.head_dim_v * bytes_of(p.dtype_v, 1)));
  }
  accepts([&] { flops(p, host); });
  if (!accepts([&] { solve_on_cpu(p, host); })) return false;
  if (p.accumulate) return true;
  bool ok = true;
  accepts([&] { ok = check_output(p, host).ok; });
  require(ok, "the reference is wrong by itself: " + to_string(p));
  return true;
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const Problem p = any_small_problem(bytes);
  HostTensors host = random_host_tensors(p, 1);
  if (bytes.flag()) return library_computes(p, host, bytes) ? 1 : 0;
  Run run(bytes);
  if (bytes.flag() || p.layout == Layout::kPackedQkv) {
    run.add("--random");
    run.add("1");
    run.add(to_string(p));
  } else {
    add_tensors(p, bytes, run);
  }
  add_tables(p, host, bytes, run);
  if (bytes.flag()) run.add("--check");
  return runs(run.words()) ? 1 : 0;
}

std::vector<std::string> corpus() { return random_inputs(256, 200); }
std::vector<std::string> words() { return {}; }

}  // namespace attnforge::fuzz
