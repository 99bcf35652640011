#include "cache/cubin_rows.h"

#include <zstd.h>

#include <memory>

#include "attnforge/error.h"
#include "generator/text/utc.h"

namespace attnforge {
namespace {

// Far above any cubin; keeps a damaged size from asking for all memory.
constexpr std::int64_t kMaxCodeBytes = 256 << 20;
constexpr int kCompressionLevel = 3;

// checksum() binds the code to its key: without it an index that names a wrong row would hand out
// another kernel, whole and with a checksum that is right.
constexpr const char* kGet = R"sql(
SELECT source_digest, arch, nvrtc, kernel_symbol, registers, smem_static_bytes, stack_bytes,
       spill_store_bytes, spill_load_bytes, wgmma_serialized, compile_ms, log, created_at,
       code_bytes, code_checksum, code, source,
       row_checksum = checksum(source_digest, arch, nvrtc, kernel_symbol, registers,
                               smem_static_bytes, stack_bytes, spill_store_bytes, spill_load_bytes,
                               wgmma_serialized, code_bytes, code_checksum)
FROM cubins NOT INDEXED WHERE id = ?1
)sql";

constexpr const char* kPut = R"sql(
INSERT OR REPLACE INTO cubins
  (source_digest, arch, nvrtc, kernel_symbol, registers, smem_static_bytes, stack_bytes,
   spill_store_bytes, spill_load_bytes, wgmma_serialized, compile_ms, log, created_at,
   code_bytes, code_checksum, code, source, row_checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
        checksum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?14, ?15))
)sql";

std::vector<std::byte> compress(std::span<const std::byte> bytes) {
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  ATTNFORGE_ASSERT(context, "zstd needs memory");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kCompressionLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::vector<std::byte> result(ZSTD_compressBound(bytes.size()));
  const std::size_t size = ZSTD_compress2(context.get(), result.data(), result.size(), bytes.data(),
                                          bytes.size());
  ATTNFORGE_ASSERT(!ZSTD_isError(size), ZSTD_getErrorName(size));
  result.resize(size);
  return result;
}

// Empty result and false if `packed` is not what was stored.
bool unpack(std::span<const std::byte> packed, std::int64_t size, const std::string& sum,
            std::vector<std::byte>& result) {
  if (size < 0 || size > kMaxCodeBytes) return false;
  result.resize(static_cast<std::size_t>(size));
  const std::size_t got = ZSTD_decompress(result.data(), result.size(), packed.data(),
                                          packed.size());
  if (!ZSTD_isError(got) && got == result.size() && checksum(result) == sum) return true;
  result.clear();
  return false;
}

std::vector<std::byte> copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

/// Calls visit(member) for the columns from source_digest to created_at.
template <class Row, class Visit>
void for_each_cubin_column(Row& row, const Visit& visit) {
  auto& c = row.cubin;
  visit(c.source_digest), visit(c.arch), visit(c.nvrtc), visit(row.kernel_symbol);
  visit(c.registers), visit(c.smem_static_bytes), visit(c.stack_bytes), visit(c.spill_store_bytes);
  visit(c.spill_load_bytes), visit(c.wgmma_serialized), visit(c.compile_ms), visit(c.log);
  visit(row.created_at);
}

// A row of the same key would be replaced: the index must not lead to another one.
void confirm_key(Database& database, const Cubin& cubin) {
  Query find = database.query(
      "SELECT id FROM cubins WHERE source_digest = ?1 AND arch = ?2 AND nvrtc = ?3",
      cubin.source_digest, cubin.arch, cubin.nvrtc);
  if (!find.step()) return;
  Query row = database.query(
      "SELECT source_digest, arch, nvrtc FROM cubins NOT INDEXED WHERE id = ?1", find.integer(0));
  if (!row.step() || row.text(0) != cubin.source_digest || row.text(1) != cubin.arch ||
      row.text(2) != cubin.nvrtc)
    index_is_damaged("cubins");
}

}  // namespace

CubinRow make_cubin_row(const Cubin& cubin, std::string_view source_text,
                        std::string_view kernel_symbol) {
  return {.cubin = cubin,
          .kernel_symbol = std::string(kernel_symbol),
          .created_at = utc_now(),
          .packed_code = compress(cubin.bytes),
          .packed_source = compress(std::as_bytes(std::span(source_text))),
          .intact = true};
}

CubinRow read_cubin_row(Database& database, std::int64_t id) {
  Query query = database.query(kGet, id);
  if (!query.step()) index_is_damaged("cubins");
  CubinRow row;
  row.id = id;
  int column = 0;
  for_each_cubin_column(row, [&](auto& member) { query.read(column++, member); });
  row.packed_code = copy(query.blob(15));
  row.packed_source = copy(query.blob(16));
  row.intact = unpack(row.packed_code, query.integer(13), query.text(14), row.cubin.bytes) &&
               query.integer(17) != 0;
  return row;
}

void put_cubin_row(Database& database, const CubinRow& row) {
  confirm_key(database, row.cubin);
  Query insert = database.query(kPut);
  for_each_cubin_column(row, [&](const auto& member) { insert.bind(member); });
  insert.bind(row.cubin.bytes.size()).bind(checksum(row.cubin.bytes));
  insert.bind(row.packed_code).bind(row.packed_source).run();
}

}  // namespace attnforge
