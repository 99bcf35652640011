// verify.h - what is wrong with a database.
#pragma once

#include <string>
#include <vector>

#include "cache/file/database.h"

namespace attnforge {

/// SQLite's own check of pages, rules, and of every index against its table, and that every row has
/// those that it refers to. A sentence for each fault, `most` at most; none if all is well.
std::vector<std::string> check_structure(Database& database, int most);

/// That, and every row as it is read: words, numbers, the checksums of cubins.
std::vector<std::string> check_everything(Database& database);

}  // namespace attnforge
