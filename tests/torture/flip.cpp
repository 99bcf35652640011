// flip.cpp - one bit of a small database is wrong, any bit of any page: whatever is asked is
// answered, missed or refused in words, no answer belongs to another question, and plans are made.
// Goes through all bits in an order that a seed decides, as far as the time goes.
#include <fmt/format.h>

#include <exception>
#include <fstream>
#include <numeric>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/small_database.h"
#include "tests/torture/options.h"

namespace attnforge::torture {
namespace {

struct Counts {
  long flips = 0, answers = 0, wrong = 0, plans = 0, thrown = 0;
  std::string first;
  std::string text(std::size_t bits) const {
    return fmt::format(
        "{} of {} bits flipped, {} answers, {} of them of another row or kernel, {} plans, {} "
        "look-ups or plans that threw",
        flips, bits, answers, wrong, plans, thrown);
  }
};

void flip_one(std::size_t bit, const std::string& path, Counts& counts) {
  std::string file = fuzz::sound_database();
  file[bit / 8] ^= static_cast<char>(1 << bit % 8);
  const auto write = [&] { std::ofstream(path, std::ios::binary | std::ios::trunc) << file; };
  const auto note = [&](const std::string& what) {
    if (counts.first.empty()) counts.first = fmt::format("bit {}: {}", bit, what);
  };
  ++counts.flips;
  try {
    write();
    const fuzz::Answers answers = fuzz::ask_everything(path);
    counts.answers += answers.found;
    counts.wrong += answers.wrong;
    if (answers.wrong > 0) note(answers.first_wrong);
    if (counts.flips % 16 == 1) {  // they take longer than all look-ups
      write();
      counts.plans += fuzz::plan_all(path);
    }
  } catch (const std::exception& error) {
    ++counts.thrown;
    note(error.what());
  }
}

int run(const Options& options) {
  const fuzz::ScratchFolder folder;
  const std::size_t bits = 8 * fuzz::sound_database().size();
  // Steps of a length without a common divisor reach every bit once.
  fuzz::Random random(options.seed);
  std::size_t step = bits / 3 + random.below(bits / 3);
  while (std::gcd(step, bits) != 1) ++step;
  std::size_t bit = random.below(bits);
  Counts counts;
  Progress progress("torture_flip");
  for (std::size_t i = 0; i < bits && progress.seconds() < options.seconds; ++i) {
    folder.empty();
    flip_one(bit, folder.path("attnforge.db"), counts);
    bit = (bit + step) % bits;
    progress.show(counts.text(bits));
  }
  fmt::print("torture_flip: {} in {:.1f} s, seed {}\n", counts.text(bits), progress.seconds(),
             options.seed);
  if (!counts.first.empty()) fmt::print("  the first: {}\n", counts.first);
  return counts.wrong == 0 && counts.thrown == 0 && counts.answers > 0 && counts.plans > 0 ? 0 : 1;
}

}  // namespace
}  // namespace attnforge::torture

int main(int argc, char** argv) {
  return attnforge::torture::run(attnforge::torture::read_options(argc, argv));
}
