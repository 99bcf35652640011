#include "tests/fuzz/small_database.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/problem/bucket.h"
#include "plan/choice/choice.h"
#include "templates/registry.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/fake_cuda.h"

namespace attnforge::fuzz {
namespace {

constexpr int kTries = 12, kCubins = 6;
constexpr const char*
    kOtherClass = "NVIDIA A100-SXM4-80GB sm_80 sms=108 memory_clock_mhz=1593 l2_bytes=41943040";

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = {
      bucket(parse_problem("fwd bf16 num_heads=8:2 seqlen=1024 head_dim=128")),
      bucket(parse_problem("fwd bf16 num_heads=8:2 seqlen=1024 head_dim=128 causal")),
      bucket(parse_problem("fwd fp16 num_heads=4 seqlen=512 head_dim=64 lse"))};
  return all;
}

/// The fake driver's first GPU.
DeviceFacts fake_h200() {
  DeviceFacts facts = typical_device("90a");
  facts.l2_bytes = 50 << 20;
  return facts;
}

/// Tries of real configs with today's digests, some of them failed. Renders sources: slow.
std::vector<Try> make_tries(const Problem& problem, const std::string& device_class) {
  std::vector<Try> tries;
  for (const Family* family : registry()) {
    const std::vector<Candidate> all = candidates(*family, problem, fake_h200());
    for (std::size_t i = 0; i < all.size() && tries.size() < kTries; i += 1 + all.size() / 4) {
      const int number = static_cast<int>(tries.size());
      Try& t = tries.emplace_back();
      t.problem = to_string(problem);
      t.device_class = device_class;
      t.config = to_string(all[i].config);
      t.family = family->name;
      t.digest = digest(family->render(all[i].config, problem));
      t.estimate_us = all[i].estimate_us;
      t.measurement = {.status = number % 5 == 4 ? Status::kWrongResult : Status::kOk,
                       .time_us = 10.0 + number,
                       .noise = 0.01,
                       .samples = 27,
                       .max_error = 0.001,
                       .clock_mhz = 1755,
                       .detail = std::string(number % 5 == 4 ? 900 : 0, 'x')};
      t.driver = "13000";
      t.nvrtc = "13.0 fake";
      t.measured_at = "2025-03-14T09:26:53Z";
    }
  }
  return tries;
}

const std::string& fake_class() {
  static const std::string text = device_class(fake_h200());
  return text;
}

/// The tries of the fake GPU, problem by problem.
const std::vector<Try>& tries_of(const Problem& problem) {
  static const std::vector<std::vector<Try>> all = [] {
    std::vector<std::vector<Try>> made;
    for (const Problem& each : problems()) made.push_back(make_tries(each, fake_class()));
    return made;
  }();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (problems()[i] == problem) return all[i];
  }
  broken("not one of the problems");
}

/// Today's digest, which takes milliseconds to compute, for what is in the database.
std::string known_digest(std::string_view config, const Problem& problem) {
  for (const Try& t : tries_of(problem)) {
    if (t.config == config) return t.digest;
  }
  return "";
}

/// Keys that differ in one letter each: the wrong one is one wrong bit away.
Cubin some_cubin(int i) {
  Cubin cubin;
  cubin.source_digest = fmt::format("d{}", i / 2);
  cubin.arch = i % 2 == 0 ? "90a" : "80";
  cubin.nvrtc = "13.0";
  cubin.bytes.resize(3000 + static_cast<std::size_t>(i));
  for (std::size_t at = 0; at < cubin.bytes.size(); ++at)
    cubin.bytes[at] = static_cast<std::byte>((at * at / 7 + static_cast<std::size_t>(i)) % 251);
  cubin.registers = 100 + i;
  cubin.log = "ptxas info";
  return cubin;
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A caller's log is readable; the cache's own is made so on its way there.
void check_log(LogLevel, std::string_view message) { require_readable(message); }

class Questions {
 public:
  explicit Questions(Cache& cache) : cache_(cache) {}

  void ask_all() {
    for (const Problem& problem : problems()) ask_tries(problem, fake_class());
    for (int i = 0; i < kCubins; ++i) {
      for (const char* nvrtc : {"", "13.0"}) ask_cubin(some_cubin(i), nvrtc);
    }
  }
  Answers answers;

 private:
  void expect(bool right, const std::string& what) {
    if (right) return;
    ++answers.wrong;
    if (answers.first_wrong.empty()) answers.first_wrong = what;
  }

  void ask_tries(const Problem& problem, const std::string& device) {
    const std::string text = to_string(problem);
    const auto digest_of = [&](std::string_view config) { return known_digest(config, problem); };
    const Cache::Current current{
        .device_class = device, .driver = "13000", .nvrtc = "13.0 fake", .sm = 90};
    if (const auto winner = cache_.best(text, current, digest_of)) {
      ++answers.found;
      expect(winner->best.problem == text, "the winner of another problem for " + text);
      expect(winner->best.device_class == device || winner->provenance == Provenance::kNearDevice ||
                 winner->provenance == Provenance::kStale,
             "the winner of another GPU class as this one's for " + text);
    }
    for (const Try& t : cache_.tries(text, device))
      expect(t.problem == text && t.device_class == device, "a try of another key for " + text);
  }

  void ask_cubin(const Cubin& sound, const char* nvrtc) {
    const auto cubin = cache_.get_cubin(sound.source_digest, sound.arch, nvrtc);
    if (!cubin) return;
    ++answers.found;
    expect(cubin->bytes == sound.bytes && cubin->source_digest == sound.source_digest &&
               cubin->arch == sound.arch,
           "another kernel's code for " + sound.source_digest + " sm_" + sound.arch);
  }

  Cache& cache_;
};

}  // namespace

const std::string& sound_database() {
  static const std::string bytes = [] {
    const ScratchFolder folder;
    const std::string path = folder.path("attnforge.db");
    {
      Cache cache(path);
      for (const Problem& problem : problems()) {
        std::vector<Try> tries = tries_of(problem);
        cache.put(tries);
        for (Try& t : tries) t.device_class = kOtherClass;
        cache.put(tries);
        cache.finish(tries[2].problem, fake_class(), Rigor::kFull, tries[2].config);
      }
      for (int i = 0; i < kCubins; ++i) cache.put_cubin(some_cubin(i), "source", "kernel");
      cache.acquire_lease(to_string(problems()[1]), kOtherClass, 60);
    }
    return file_bytes(path);
  }();
  return bytes;
}

Answers ask_everything(const std::string& path) {
  Cache cache(path);
  Questions questions(cache);
  questions.ask_all();
  // Stored, or refused in words: a flip can make another valid schema of ours.
  Try next = tries_of(problems()[0])[0];
  next.config = "fwd_naive stored_last=1";
  accepts([&] { cache.put({next}); });
  accepts([&] { cache.put_cubin(some_cubin(1), "source", "kernel"); });
  questions.ask_all();
  accepts([&] { cache.finish(next.problem, next.device_class, Rigor::kQuick, next.config); });
  accepts([&] { cache.acquire_lease(next.problem, next.device_class, 1); });
  return questions.answers;
}

int plan_all(const std::string& path) {
  setenv("ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC, 1);
  test::fake_cuda();  // throws if the real driver would be used
  Device device({.cache_path = path, .log = check_log});
  int made = 0;
  for (const Problem& problem : problems()) {
    const Plan plan = make_plan(problem, device);
    require(illegal(parse_config(plan.config()), problem, device.facts()).empty(),
            "a plan with an illegal config: " + plan.config());
    ++made;
  }
  return made;
}

}  // namespace attnforge::fuzz
