// large_database.cpp - what a plan in a fresh process takes where the database holds the winners of
// a fleet, beside one that holds a single winner. Of processor time, so that a busy machine says
// the same. Ends with 0 if it takes no longer, and with a limit, if it is within that. On a GPU or
// on the fake one.
//
//     large_database [WINNERS [MOST_MS]]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/memory.h"

namespace {

using namespace attnforge;

constexpr double
    kMostGrowth = 1.25;  // noise; a look-up that walks all rows takes 100 times as long
constexpr int kProcesses = 15;
constexpr std::size_t kBatch = 50000;
constexpr const char* kTuned = "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal";

/// Of this process: a machine with more to do than cores does not make it longer.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * double(now.tv_sec) + 1e-6 * double(now.tv_nsec);
}

int tune_one(const char* path) {
  Device device({.cache_path = path});
  tune(parse_problem(kTuned), device, {.rigor = Rigor::kQuick});
  make_plan(parse_problem(kTuned), device);
  std::puts("1");
  return 0;
}

/// As many problems as that, of the GPU here, each with a winner that was raced.
int fill(const char* path, std::size_t winners) {
  const DeviceFacts facts = enumerate_devices().at(0);
  Cache cache(path);
  const std::string device = device_class(facts);
  const std::string config = cache.tries(to_string(parse_problem(kTuned)), device).at(0).config;
  std::mt19937 random(1);
  std::vector<Try> batch;
  for (std::size_t i = 0; i < winners; ++i) {
    const std::size_t heads_kv = 1 + i % 8;
    Try t;
    t.problem = to_string(parse_problem(
        fmt::format("fwd bf16 batch={} num_heads={}:{} seqlen={}:{} head_dim={}{}", 1 + i / 8 % 25,
                    heads_kv * (1 + i / 200 % 8), heads_kv, 64 * (1 + i / 1600 % 8),
                    64 * (8 + i / 12800), i % 3 == 0 ? 64 : 128, i % 2 == 0 ? " causal" : "")));
    t.device_class = device;
    t.config = config;
    t.digest = fmt::format("{:032x}", i);
    t.family = config.substr(0, config.find(' '));
    t.rigor = Rigor::kQuick;
    t.measurement = {.status = Status::kOk, .time_us = 1 + double(random() % 1000), .samples = 21};
    batch.push_back(std::move(t));
    if (batch.size() < kBatch && i + 1 < winners) continue;
    cache.put(batch);
    batch.clear();
  }
  std::puts("1");
  return 0;
}

int fresh_plan(const char* path) {
  PrimaryContext primary(0);  // driver start: initialisation and the context
  const ScopedContext context(primary);
  { const Buffer first_allocation(1 << 20); }
  const double start_ms = cpu_ms();
  Device device({.cache_path = path});
  const Plan plan = make_plan(parse_problem(kTuned), device,
                              {.policy = Policy::kCachedOnly, .allow_compile = false});
  std::printf("%f\n", cpu_ms() - start_ms);
  return plan.provenance() == Provenance::kMeasured ? 0 : 1;
}

/// What this program prints with these arguments, in a process of its own.
double asked(const std::string& arguments) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  FILE* const child = popen((self + " " + arguments).c_str(), "r");
  if (child == nullptr) throw std::runtime_error("no process can be started");
  double said = 0;
  const bool read = std::fscanf(child, "%lf", &said) == 1;
  if (pclose(child) != 0 || !read) throw std::runtime_error(arguments + " failed");
  return said;
}

/// The least of some processes, of both databases by turns.
int compare(std::size_t winners, double most_ms) {
  std::string folder = std::filesystem::temp_directory_path() / "attnforge_large_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder " + folder);
  const std::string one = folder + "/one.db", all = folder + "/all.db";
  asked("--tune " + one);
  std::filesystem::copy_file(one, all);
  std::filesystem::permissions(all, std::filesystem::perms(0600));
  asked(fmt::format("--fill {} {}", all, winners));
  double one_ms = 1e9, all_ms = 1e9;
  for (int i = 0; i < kProcesses; ++i) {
    one_ms = std::min(one_ms, asked("--plan " + one));
    all_ms = std::min(all_ms, asked("--plan " + all));
  }
  const auto mib = std::filesystem::file_size(all) >> 20;
  std::filesystem::remove_all(folder);
  std::printf(
      "a plan in a fresh process: %.2f ms of processor time, with %zu winners more (%zu MiB) %.2f "
      "ms\n",
      one_ms, winners, static_cast<std::size_t>(mib), all_ms);
  return all_ms <= kMostGrowth * one_ms && (most_ms == 0 || all_ms <= most_ms) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view what = argc > 2 ? argv[1] : "";
  if (what == "--tune") return tune_one(argv[2]);
  if (what == "--fill" && argc == 4) return fill(argv[2], std::stoul(argv[3]));
  if (what == "--plan") return fresh_plan(argv[2]);
  return compare(argc > 1 ? std::stoul(argv[1]) : 100'000, argc > 2 ? std::stod(argv[2]) : 0);
} catch (const std::exception& error) {
  std::fprintf(stderr, "large_database: %s\n", error.what());
  return 1;
}
