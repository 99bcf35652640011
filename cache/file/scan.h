// scan.h - reads whole tables past whatever damage there is, and saves them: one bad row or page
// does not hide the rest.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cubin_rows.h"
#include "cache/file/database.h"
#include "cache/rows.h"

namespace attnforge {

/// A sentence for each row, or stretch of rows, that cannot be read.
using LeftOut = std::vector<std::string>;

/// Tries of the problems whose text holds `filter`, by id, from tables and from no index. Throws
/// SqliteError only for what is not damage (a lock, a missing table).
std::vector<Try> scan_tries(Database& database, std::string_view filter, LeftOut& left_out);

/// Finished searches, ordered by problem, GPU class and rigor.
std::vector<Search> scan_searches(Database& database, std::string_view filter, LeftOut& left_out);

/// Gives each cubin to `take`, one at a time. One that is not intact() is left out.
void scan_cubins(Database& database, const std::function<void(const CubinRow&)>& take,
                 LeftOut& left_out);

struct Salvaged {
  int tries = 0, searches = 0, cubins = 0;
  std::string text() const;  // "12 tries, 1 search and 3 cubins"
};

/// Merges tries, finished searches and cubins of `from` into `to`, in one transaction: what is
/// there stays if it is as good. Leases stay behind. Throws SqliteError for what is wrong with
/// `to`, and if `from` cannot be read at all.
Salvaged salvage(Database& from, Database& to);

}  // namespace attnforge
