// salvage.h - what can still be read of one database goes into another.
#pragma once

#include <string>

#include "cache/file/database.h"

namespace attnforge {

struct Salvaged {
  int tries = 0, searches = 0, cubins = 0;
  int left_out = 0;          // rows, or stretches of rows, that cannot be read
  std::string text() const;  // "12 tries, 1 search and 3 cubins"
};

/// Merges tries, finished searches and cubins of `from` into `to`, in one transaction: what is
/// there stays if it is as good. Leases stay behind. Throws SqliteError for what is wrong with
/// `to`, and if `from` cannot be read at all.
Salvaged salvage(Database& from, Database& to);

}  // namespace attnforge
