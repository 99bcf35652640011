// cubin_rows.cpp - see cubin_rows.h.
#include "cache/cubin_rows.h"

#include <zstd.h>

#include <memory>
#include <span>
#include <string_view>

#include "attnforge/error.h"
#include "cache/file/checksum.h"
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

// A row of the same key would be replaced: the index must not lead to another one.
void confirm_key(Database& database, const Cubin& cubin) {
  Query find = database.query(
      "SELECT id FROM cubins WHERE source_digest = ?1 AND arch = ?2 AND nvrtc = ?3");
  if (!find.bind(1, cubin.source_digest).bind(2, cubin.arch).bind(3, cubin.nvrtc).step()) return;
  Query row = database.query(
      "SELECT source_digest, arch, nvrtc FROM cubins NOT INDEXED WHERE id = ?1");
  if (!row.bind(1, find.integer(0)).step() || row.text(0) != cubin.source_digest ||
      row.text(1) != cubin.arch || row.text(2) != cubin.nvrtc)
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
  Query query = database.query(kGet);
  if (!query.bind(1, id).step()) index_is_damaged("cubins");
  CubinRow row;
  row.id = id;
  Cubin& cubin = row.cubin;
  cubin.source_digest = query.text(0);
  cubin.arch = query.text(1);
  cubin.nvrtc = query.text(2);
  row.kernel_symbol = query.text(3);
  cubin.registers = static_cast<int>(query.integer(4));
  cubin.smem_static_bytes = static_cast<int>(query.integer(5));
  cubin.stack_bytes = static_cast<int>(query.integer(6));
  cubin.spill_store_bytes = static_cast<int>(query.integer(7));
  cubin.spill_load_bytes = static_cast<int>(query.integer(8));
  cubin.wgmma_serialized = query.integer(9) != 0;
  cubin.compile_ms = query.real(10);
  cubin.log = query.text(11);
  row.created_at = query.text(12);
  row.packed_code = copy(query.blob(15));
  row.packed_source = copy(query.blob(16));
  row.intact = unpack(row.packed_code, query.integer(13), query.text(14), cubin.bytes) &&
               query.integer(17) != 0;
  return row;
}

void put_cubin_row(Database& database, const CubinRow& row) {
  const Cubin& cubin = row.cubin;
  confirm_key(database, cubin);
  Query insert = database.query(kPut);
  insert.bind(1, cubin.source_digest)
      .bind(2, cubin.arch)
      .bind(3, cubin.nvrtc)
      .bind(4, row.kernel_symbol);
  insert.bind(5, cubin.registers).bind(6, cubin.smem_static_bytes).bind(7, cubin.stack_bytes);
  insert.bind(8, cubin.spill_store_bytes)
      .bind(9, cubin.spill_load_bytes)
      .bind(10, cubin.wgmma_serialized);
  insert.bind(11, cubin.compile_ms).bind(12, cubin.log).bind(13, row.created_at);
  insert.bind(14, static_cast<std::int64_t>(cubin.bytes.size())).bind(15, checksum(cubin.bytes));
  insert.bind(16, std::span<const std::byte>(row.packed_code))
      .bind(17, std::span<const std::byte>(row.packed_source))
      .run();
}

}  // namespace attnforge
