// database.cpp - a small database with any bytes changed: whatever is asked of it is answered,
// missed or refused in words, what is answered is what was asked for, and plans are made. An input
// is a list of changes.
#include <fstream>
#include <sstream>

#include "attnforge/cache.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_database.h"

namespace attnforge::fuzz {
namespace {

std::string changed(std::string file, Bytes& bytes) {
  constexpr std::size_t kPage = 4096;
  do {
    if (file.empty()) return file;
    const std::size_t at = bytes.bits(4) % file.size();
    const std::size_t page = at / kPage * kPage;
    switch (bytes.byte() % 8) {
      case 0:
        file[at] = static_cast<char>(bytes.byte());
        break;
      case 1:
        file.resize(at);
        break;
      case 2: {  // a page in another's place
        const std::size_t from = bytes.bits(4) % file.size() / kPage * kPage;
        file.replace(page, std::min(kPage, file.size() - page), file.substr(from, kPage));
        break;
      }
      case 3:
        for (std::size_t i = at; i < std::min(at + 64, file.size()); ++i) file[i] = 0;
        break;
      default:
        file[at] ^= static_cast<char>(1 << bytes.byte() % 8);
    }
  } while (!bytes.empty());
  return file;
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const ScratchFolder folder;
  folder.empty();
  const std::string path = folder.path("attnforge.db");
  Bytes bytes(data, size);
  const std::string file = changed(sound_database(), bytes);
  const auto write = [&] { std::ofstream(path, std::ios::binary | std::ios::trunc) << file; };

  write();
  accepts([&] { cache_stats(path); });
  accepts([&] { cache_verify(path); });
  accepts([&] { cache_list(path); });
  accepts([&] { cache_show(path, ""); });
  accepts([&] {
    std::ostringstream out;
    cache_export(path, out);
  });
  const Answers answers = ask_everything(path);
  require(answers.wrong == 0, answers.first_wrong);
  if (size % 4 == 0) {
    write();
    plan_all(path);
  }
  write();
  accepts([&] { cache_clear(path, "seqlen_q=1024"); });
  accepts([&] { cache_clear(path, "", true); });
  return answers.found > 0 ? 1 : 0;
}

std::vector<std::string> corpus() {
  std::vector<std::string> inputs = random_inputs(40, 6);
  for (const std::string& more : random_inputs(40, 24)) inputs.push_back(more);
  return inputs;
}
std::vector<std::string> words() { return {}; }

}  // namespace attnforge::fuzz
