// support.cpp - see support.h.
#include "support.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace attnforge::testing {

namespace fs = std::filesystem;

Folder::Folder() {
  // In memory where that is possible: thousands of commits need not wait for a disk to prove
  // anything here.
  const char* memory = "/dev/shm";
  const fs::path parent = access(memory, W_OK) == 0 ? fs::path(memory) : fs::temp_directory_path();
  std::string name = (parent / "attnforge_cache_XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed for " + name);
  path_ = name;
  fs::permissions(path_, fs::perms(0755));  // for become_nobody()
}

Folder::~Folder() {
  std::error_code ignored;
  fs::permissions(path_, fs::perms::owner_all, ignored);
  fs::remove_all(path_, ignored);
}

std::vector<std::string> Folder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string config(int i) { return fmt::format("fwd_test block_m={}", i); }

std::string digest_of(std::string_view config) { return "digest of " + std::string(config); }

Try good_try(int i, double time_us, Rigor rigor) {
  Try t;
  t.problem = kProblem;
  t.device_class = kH200;
  t.config = config(i);
  t.family = "fwd_test";
  t.digest = digest_of(t.config);
  t.rigor = rigor;
  t.estimate_us = time_us * 0.9;
  t.measurement = {.status = Status::kOk,
                   .time_us = time_us,
                   .noise = 0.01,
                   .samples = 27,
                   .max_error = 0.001,
                   .clock_mhz = 1755,
                   .detail = ""};
  t.driver = kDriver;
  t.nvrtc = kNvrtc;
  t.uuid = "GPU-0123";
  t.attnforge_version = "0.1.0";
  t.measured_at = "2025-03-14T09:26:53Z";
  return t;
}

Try failed_try(int i, Status status, const std::string& detail) {
  Try t = good_try(i, 1);
  t.measurement = {.status = status, .detail = detail};
  return t;
}

Cache::Current current(const std::string& device_class, int sm) {
  return {.device_class = device_class, .driver = kDriver, .nvrtc = kNvrtc, .sm = sm};
}

Cubin cubin(const std::string& digest, std::size_t bytes) {
  Cubin c;
  c.bytes.resize(bytes);
  for (std::size_t i = 0; i < bytes; ++i) c.bytes[i] = static_cast<std::byte>((i * i / 7) % 251);
  c.arch = "90a";
  c.source_digest = digest;
  c.nvrtc = kNvrtc;
  c.registers = 168;
  c.smem_static_bytes = 16;
  c.stack_bytes = 8;
  c.spill_store_bytes = 4;
  c.spill_load_bytes = 12;
  c.wgmma_serialized = true;
  c.compile_ms = 210.5;
  c.log = "ptxas info";
  return c;
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::size_t> index_bits(const std::string& path, bool with_tables) {
  constexpr std::size_t kPage = 4096;
  constexpr unsigned char kIndexLeaf = 0x0a, kIndexInterior = 0x02;
  std::vector<std::size_t> roots;
  {
    Database database(path, SQLITE_OPEN_READONLY);
    Query query = database.query("SELECT rootpage FROM sqlite_master WHERE type = 'index'");
    while (query.step()) roots.push_back(static_cast<std::size_t>(query.integer(0)));
  }
  const std::string file = read_file(path);
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(file[at]); };
  std::vector<std::size_t> bits;
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t bit = 8 * begin; bit < 8 * end; ++bit) bits.push_back(bit);
  };
  for (std::size_t page = 1; (page + 1) * kPage <= file.size(); ++page) {
    const std::size_t start = page * kPage;
    if (byte(start) != kIndexLeaf && byte(start) != kIndexInterior) continue;
    const bool is_index = std::find(roots.begin(), roots.end(), page + 1) != roots.end();
    if (!is_index && !with_tables) continue;
    // https://www.sqlite.org/fileformat.html, section 1.6
    const std::size_t cells = 256u * byte(start + 3) + byte(start + 4);
    const std::size_t content = 256u * byte(start + 5) + byte(start + 6);
    const std::size_t header = byte(start) == kIndexLeaf ? 8 : 12;
    add(start, start + header + 2 * cells);
    add(start + content, start + kPage);
  }
  return bits;
}

BitFlipper::BitFlipper(const std::string& path) : descriptor_(open(path.c_str(), O_RDWR)) {
  if (descriptor_ < 0) throw std::runtime_error("cannot open " + path);
}

BitFlipper::~BitFlipper() { close(descriptor_); }

void BitFlipper::flip(std::size_t bit) {
  unsigned char byte = 0;
  const auto at = static_cast<off_t>(bit / 8);
  if (pread(descriptor_, &byte, 1, at) != 1) throw std::runtime_error("cannot read a byte");
  byte = static_cast<unsigned char>(byte ^ (1u << (bit % 8)));
  if (pwrite(descriptor_, &byte, 1, at) != 1) throw std::runtime_error("cannot write a byte");
}

pid_t start_child(const std::function<bool()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  int status = 1;
  try {
    status = work() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(status);
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int in_child(const std::function<bool()>& work) { return wait_for(start_child(work)); }

constexpr unsigned kNobody = 65534;

void give_to_nobody(const std::string& path) {
  if (geteuid() == 0 && chown(path.c_str(), kNobody, kNobody) != 0)
    throw std::runtime_error("cannot give away " + path);
}

void become_nobody() {
  if (geteuid() != 0) return;
  if (setgid(kNobody) != 0 || setuid(kNobody) != 0) throw std::runtime_error("cannot give up root");
}

}  // namespace attnforge::testing
