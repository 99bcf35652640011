// faulty_worker.cpp - a worker that knows the faulty families, too.
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "tests/tuner/faulty_family.h"
#include "tuner/worker/serve.h"

namespace {

using namespace attnforge;
using testing::FaultKind;

template <std::size_t... kKinds>
const Family* faulty(std::string_view name, std::index_sequence<kKinds...>) {
  const Family* found = nullptr;
  ((testing::kFaults[kKinds].name == name
        ? void(found = &testing::faulty_family<static_cast<FaultKind>(kKinds)>())
        : void()),
   ...);
  return found;
}

const Family* family_of(std::string_view name) {
  const Family* const family = faulty(name, std::make_index_sequence<testing::kFaults.size()>());
  return family != nullptr ? family : find_family(name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto role = std::string_view(argv[2]) == "gpu" ? WorkerRole::kGpu : WorkerRole::kCompile;
  if (!become_worker(role, std::atoi(argv[3]))) return 1;
  std::_Exit(serve(role, "faulty", family_of));
}
