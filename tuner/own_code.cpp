#include "tuner/own_code.h"

#include <utility>

#include "runtime/compile/compiler.h"
#include "tuner/instruments.h"
#include "tuner/oracle.h"

namespace attnforge {

std::vector<Source> own_sources(const Problem& problem, const DeviceFacts& device) {
  std::vector<Source> sources = {instruments_source()};
  for (Source& source : oracle_sources(problem, device)) sources.push_back(std::move(source));
  return sources;
}

Cubin code_of(const OwnCode& code, const Source& source, const Arch& arch) {
  const auto known = code.find(digest(source));
  return known != code.end() ? known->second : compile(source, arch);
}

}  // namespace attnforge
