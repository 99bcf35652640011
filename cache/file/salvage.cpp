// salvage.cpp - see salvage.h.
#include "cache/file/salvage.h"

#include <fmt/format.h>

#include "cache/file/open.h"
#include "cache/file/scan.h"

namespace attnforge {
namespace {

std::string counted(int count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace

std::string Salvaged::text() const {
  return fmt::format("{}, {} and {}", counted(tries, "try", "tries"),
                     counted(searches, "search", "searches"), counted(cubins, "cubin", "cubins"));
}

Salvaged salvage(Database& from, Database& to) {
  Salvaged result;
  LeftOut left_out;
  WriteTransaction transaction(to);
  for (const Try& attempt : scan_tries(from, "", left_out)) {
    put_try(to, attempt, Conflict::kMerge);
    ++result.tries;
  }
  for (const Search& search : scan_searches(from, "", left_out)) {
    put_search(to, search, Conflict::kMerge);
    ++result.searches;
  }
  const auto keep = [&](const CubinRow& row) {
    put_cubin_row(to, row);
    ++result.cubins;
  };
  scan_cubins(from, keep, left_out);
  transaction.commit();
  result.left_out = static_cast<int>(left_out.size());
  return result;
}

}  // namespace attnforge
