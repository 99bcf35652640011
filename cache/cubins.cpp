// cubins.cpp - Cache: machine code goes in and comes back, or does not come back at all.
#include "attnforge/error.h"
#include "cache/cache.h"
#include "cache/cubin_rows.h"
#include "cache/store.h"

namespace attnforge {
namespace {

constexpr const char* kFind = R"sql(
SELECT id FROM cubins WHERE source_digest = ?1 AND arch = ?2 AND (?3 = '' OR nvrtc = ?3)
ORDER BY created_at DESC, id DESC LIMIT 1
)sql";

}  // namespace

std::optional<Cubin> Cache::get_cubin(std::string_view source_digest, std::string_view arch,
                                      std::string_view nvrtc) {
  Store& store = *store_;
  auto row = store.read("look-up of a cubin", [&](Database& database) {
    std::optional<CubinRow> found;
    const ReadTransaction one_view(database);
    Query query = database.query(kFind, source_digest, arch, nvrtc);
    if (!query.step()) return found;
    found = read_cubin_row(database, query.integer(0));
    const Cubin& cubin = found->cubin;
    const bool asked_for = cubin.source_digest == source_digest && cubin.arch == arch &&
                           (nvrtc.empty() || cubin.nvrtc == nvrtc);
    // A sound row of another kernel: the damage is in the index. Else it is in the row.
    if (found->intact && !asked_for) index_is_damaged("cubins");
    return found;
  });
  if (!row) return std::nullopt;
  if (row->intact) return std::move(row->cubin);

  store.log(LogLevel::kWarning,
            "the cubin {} for sm_{} in {} does not match its checksum: it is dropped and will be "
            "compiled again",
            source_digest, arch, store.path());
  try {
    store.write("dropping a damaged cubin", [&](Database& database) {
      // The file may be a new one by now, where the number is another row's.
      if (database.query("SELECT 1 FROM cubins NOT INDEXED WHERE id = ?1", row->id).step() &&
          !read_cubin_row(database, row->id).intact)
        database.query("DELETE FROM cubins WHERE id = ?1", row->id).run();
    });
  } catch (const Error& error) {
    store.log(LogLevel::kWarning, "{}", error.what());
  }
  return std::nullopt;
}

void Cache::put_cubin(const Cubin& cubin, std::string_view source_text,
                      std::string_view kernel_symbol) {
  // Compressed before the write lock is taken.
  const CubinRow row = make_cubin_row(cubin, source_text, kernel_symbol);
  store_->write("storing a cubin", [&](Database& database) { put_cubin_row(database, row); });
}

}  // namespace attnforge
