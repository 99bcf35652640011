// small_database.h - a sound database of a few pages, whatever is asked of a damaged copy of it,
// and how many of the answers belong to another question.
#pragma once

#include <string>

namespace attnforge::fuzz {

/// The bytes of the sound file: tries of real configs of three problems on two GPU classes, a
/// finished search, cubins with keys that differ in one letter, a lease.
const std::string& sound_database();

struct Answers {
  int found = 0;
  int wrong = 0;            // of another problem, GPU class or kernel
  std::string first_wrong;  // "": none
};

/// Opens the file at `path` and looks up everything that is in the sound one, stores a try, and
/// looks up again. Throws what the library throws: nothing is expected.
Answers ask_everything(const std::string& path);

/// Makes a plan for each problem on the fake driver's H200 with the file at `path` as its database.
/// Returns how many were made; throws if one was refused.
int plan_all(const std::string& path);

}  // namespace attnforge::fuzz
