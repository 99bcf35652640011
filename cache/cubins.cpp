// cubins.cpp - Cache: machine code, compressed and with a checksum.
#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>
#include <zstd.h>

#include <cstring>
#include <memory>
#include <span>

#include "attnforge/error.h"
#include "cache/cache.h"
#include "cache/impl.h"
#include "cache/rows.h"

namespace attnforge {
namespace {

// Far above any cubin; keeps a damaged size from asking for all memory.
constexpr std::int64_t kMaxCodeBytes = 256 << 20;
constexpr int kCompressionLevel = 3;

constexpr const char* kGet = R"sql(
SELECT id, registers, smem_static_bytes, stack_bytes, spill_store_bytes, spill_load_bytes,
       wgmma_serialized, compile_ms, log, code_bytes, code_checksum, code, nvrtc
FROM cubins WHERE source_digest = ?1 AND arch = ?2 AND (?3 = '' OR nvrtc = ?3)
ORDER BY created_at DESC, id DESC LIMIT 1
)sql";

constexpr const char* kPut = R"sql(
INSERT OR REPLACE INTO cubins
  (source_digest, arch, nvrtc, kernel_symbol, registers, smem_static_bytes, stack_bytes,
   spill_store_bytes, spill_load_bytes, wgmma_serialized, compile_ms, log, created_at,
   code_bytes, code_checksum, code, source)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
)sql";

std::string checksum(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

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

struct Row {
  std::int64_t id = 0;
  Cubin cubin;
  bool intact = false;
};

}  // namespace

std::optional<Cubin> Cache::get_cubin(std::string_view source_digest, std::string_view arch,
                                      std::string_view nvrtc) {
  Store& store = impl_->store;
  auto row = store.read("look-up of a cubin", [&](Database& database) {
    std::optional<Row> found;
    Query query = database.query(kGet);
    if (!query.bind(1, source_digest).bind(2, arch).bind(3, nvrtc).step()) return found;
    found.emplace();
    found->id = query.integer(0);
    Cubin& cubin = found->cubin;
    cubin.arch = arch;
    cubin.source_digest = source_digest;
    cubin.nvrtc = query.text(12);
    cubin.registers = static_cast<int>(query.integer(1));
    cubin.smem_static_bytes = static_cast<int>(query.integer(2));
    cubin.stack_bytes = static_cast<int>(query.integer(3));
    cubin.spill_store_bytes = static_cast<int>(query.integer(4));
    cubin.spill_load_bytes = static_cast<int>(query.integer(5));
    cubin.wgmma_serialized = query.integer(6) != 0;
    cubin.compile_ms = query.real(7);
    cubin.log = query.text(8);
    found->intact = unpack(query.blob(11), query.integer(9), query.text(10), cubin.bytes);
    return found;
  });
  if (!row) return std::nullopt;
  if (row->intact) return std::move(row->cubin);

  store.log(
      LogLevel::kWarning,
      fmt::format(
          "the cubin {} for sm_{} in {} does not match its checksum: it is dropped and will be "
          "compiled again",
          source_digest, arch, store.path()));
  try {
    store.write("dropping a damaged cubin", [&](Database& database) {
      database.query("DELETE FROM cubins WHERE id = ?1").bind(1, row->id).run();
    });
  } catch (const Error& error) {
    store.log(LogLevel::kWarning, error.what());
  }
  return std::nullopt;
}

void Cache::put_cubin(const Cubin& cubin, std::string_view source_text,
                      std::string_view kernel_symbol) {
  // Compressed before the write lock is taken.
  const std::vector<std::byte> code = compress(cubin.bytes);
  const std::vector<std::byte> source = compress(std::as_bytes(std::span(source_text)));
  const std::string sum = checksum(cubin.bytes);
  impl_->store.write("storing a cubin", [&](Database& database) {
    Query insert = database.query(kPut);
    insert.bind(1, cubin.source_digest)
        .bind(2, cubin.arch)
        .bind(3, cubin.nvrtc)
        .bind(4, kernel_symbol);
    insert.bind(5, cubin.registers).bind(6, cubin.smem_static_bytes).bind(7, cubin.stack_bytes);
    insert.bind(8, cubin.spill_store_bytes)
        .bind(9, cubin.spill_load_bytes)
        .bind(10, cubin.wgmma_serialized);
    insert.bind(11, cubin.compile_ms).bind(12, cubin.log).bind(13, utc_now());
    insert.bind(14, static_cast<std::int64_t>(cubin.bytes.size()))
        .bind(15, sum)
        .bind(16, std::span<const std::byte>(code));
    insert.bind(17, std::span<const std::byte>(source)).run();
  });
}

}  // namespace attnforge
