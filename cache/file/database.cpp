#define XXH_INLINE_ALL
#include "cache/file/database.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <limits>

namespace attnforge {
namespace {

// sqlite3_system_errno() reads errno late, when the roll-back has had its system calls; the files
// remember their own.
int errno_of(sqlite3* connection) {
  int of_database = 0;
  sqlite3_file_control(connection, "main", SQLITE_FCNTL_LAST_ERRNO, &of_database);
  if (of_database != 0) return of_database;
  int of_journal = 0;
  sqlite3_file* journal = nullptr;
  sqlite3_file_control(connection, "main", SQLITE_FCNTL_JOURNAL_POINTER, &journal);
  if (journal && journal->pMethods)
    journal->pMethods->xFileControl(journal, SQLITE_FCNTL_LAST_ERRNO, &of_journal);
  return of_journal != 0 ? of_journal : sqlite3_system_errno(connection);
}

void check_call(sqlite3* connection, int result) {
  if (result == SQLITE_OK) return;
  const int extended = connection ? sqlite3_extended_errcode(connection) : result;
  const int primary = extended & 0xff;
  const int system_errno = connection && (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN)
                               ? errno_of(connection)
                               : 0;
  const char* message = connection ? sqlite3_errmsg(connection) : sqlite3_errstr(result);
  throw SqliteError(extended, system_errno, fmt::format("{} (SQLite code {})", message, extended));
}

void checksum_function(sqlite3_context* context, int count, sqlite3_value** values) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const auto* data = reinterpret_cast<const char*>(sqlite3_value_text(values[i]));
    const auto size = static_cast<std::size_t>(sqlite3_value_bytes(values[i]));
    text += fmt::format("{}:", size);  // two texts never look like two others
    if (data) text.append(data, size);
  }
  const std::string sum = checksum(std::as_bytes(std::span(text)));
  sqlite3_result_text(context, sum.data(), static_cast<int>(sum.size()), SQLITE_TRANSIENT);
}

}  // namespace

bool SqliteError::disk_full() const {
  if (code() == SQLITE_FULL) return true;
  return code() == SQLITE_IOERR &&
         (system_errno_ == ENOSPC || system_errno_ == EDQUOT || system_errno_ == EFBIG);
}

bool SqliteError::read_only() const {
  if (code() == SQLITE_READONLY || code() == SQLITE_PERM) return !moved();
  const bool refused = system_errno_ == EROFS || system_errno_ == EACCES || system_errno_ == EPERM;
  return refused && (code() == SQLITE_CANTOPEN || code() == SQLITE_IOERR);
}

void index_is_damaged(std::string_view index) {
  throw SqliteError(SQLITE_CORRUPT_INDEX, 0,
                    fmt::format("the index of {} does not match the table", index));
}

Query::~Query() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Query::check(int result) const { check_call(connection_, result); }

// A null pointer would bind NULL: an empty view may have one.
void Query::bind_text(std::string_view text) {
  check(sqlite3_bind_text(statement_, ++bound_, text.data() ? text.data() : "",
                          static_cast<int>(text.size()), SQLITE_TRANSIENT));
}
void Query::bind_blob(std::span<const std::byte> blob) {
  check(sqlite3_bind_blob64(statement_, ++bound_,
                            blob.data() ? static_cast<const void*>(blob.data()) : "", blob.size(),
                            SQLITE_STATIC));
}

bool Query::step() {
  const int result = sqlite3_step(statement_);
  if (result != SQLITE_ROW && result != SQLITE_DONE) check(result);
  return result == SQLITE_ROW;
}

double Query::real(int column) const {
  return null(column) ? std::numeric_limits<double>::quiet_NaN()
                      : sqlite3_column_double(statement_, column);
}

std::string Query::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return data
             ? std::string(data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)))
             : std::string();
}

std::span<const std::byte> Query::blob(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return {static_cast<const std::byte*>(data),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

Database::Database(const std::string& path, int flags) {
  sqlite3* connection = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &connection,
                                     flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  connection_.reset(connection);
  check_call(connection, result);
  sqlite3_create_function_v2(connection, "checksum", -1,
                             SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
                             checksum_function, nullptr, nullptr, nullptr);
  // Definitions inside a file from elsewhere may call no function with side effects, and damage is
  // looked for early.
  execute("PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;");
}

// Statements must go before the connection that they belong to; the default would assign in the
// order of the members.
Database& Database::operator=(Database&& other) noexcept {
  statements_ = std::move(other.statements_);
  connection_ = std::move(other.connection_);
  return *this;
}

sqlite3_stmt* Database::statement(const char* sql) {
  Statement& kept = statements_[sql];
  if (!kept) {
    sqlite3_stmt* made = nullptr;
    check_call(connection_.get(), sqlite3_prepare_v3(connection_.get(), sql, -1,
                                                     SQLITE_PREPARE_PERSISTENT, &made, nullptr));
    kept.reset(made);
  }
  return kept.get();
}

void Database::execute(const char* sql) {
  check_call(connection_.get(), sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr));
}

std::int64_t Database::integer(const char* sql) {
  Query first = query(sql);
  return first.step() ? first.integer(0) : 0;
}

std::string Database::text(const char* sql) {
  Query first = query(sql);
  return first.step() ? first.text(0) : std::string();
}

void Database::wait_for_locks(int milliseconds) {
  sqlite3_busy_timeout(connection_.get(), milliseconds);
}

bool Database::moved() const {
  int moved = 0;
  const int result = sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_HAS_MOVED,
                                          &moved);
  return result == SQLITE_OK && moved != 0;
}

Transaction::~Transaction() {
  // SQLite has rolled back by itself after some errors (disk full, I/O); a second ROLLBACK would
  // only be an error.
  if (database_.in_transaction())
    sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

std::string checksum(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace attnforge
