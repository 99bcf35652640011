// cubin_rows.h - machine code as a row of `cubins` and back, with the checksums that say whether it
// is what was stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/file/database.h"
#include "generator/cubin.h"

namespace attnforge {

struct CubinRow {
  std::int64_t id = 0;
  Cubin cubin;
  std::string kernel_symbol, created_at;
  std::vector<std::byte> packed_code, packed_source;  // zstd
  /// The bytes are those that were compiled, and key, symbol and resources those that were stored
  /// with them.
  bool intact = false;
};

/// Compresses code and source.
CubinRow make_cubin_row(const Cubin& cubin, std::string_view source_text,
                        std::string_view kernel_symbol);

/// The row of this id, read from the table and from no index. Throws SqliteError, corrupt() if
/// there is none.
CubinRow read_cubin_row(Database& database, std::int64_t id);

/// Inside a transaction. A row of the same key is replaced.
void put_cubin_row(Database& database, const CubinRow& row);

}  // namespace attnforge
