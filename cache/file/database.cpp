// database.cpp - the calls to SQLite.
#include "cache/file/database.h"

#include <fmt/format.h>

#include <cerrno>

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

[[noreturn]] void fail(sqlite3* connection, int result) {
  const int extended = connection ? sqlite3_extended_errcode(connection) : result;
  const int primary = extended & 0xff;
  const int system_errno = connection && (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN)
                               ? errno_of(connection)
                               : 0;
  const char* message = connection ? sqlite3_errmsg(connection) : sqlite3_errstr(result);
  throw SqliteError(extended, system_errno, fmt::format("{} (SQLite code {})", message, extended));
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

void Query::check(int result) const {
  if (result != SQLITE_OK) fail(connection_, result);
}

Query& Query::bind(int parameter, std::string_view text) {
  // A null pointer would bind NULL: an empty string_view may have one.
  check(sqlite3_bind_text(statement_, parameter, text.data() ? text.data() : "",
                          static_cast<int>(text.size()), SQLITE_TRANSIENT));
  return *this;
}

Query& Query::bind(int parameter, std::int64_t value) {
  check(sqlite3_bind_int64(statement_, parameter, value));
  return *this;
}

Query& Query::bind(int parameter, double value) {
  check(sqlite3_bind_double(statement_, parameter, value));
  return *this;
}

Query& Query::bind(int parameter, std::span<const std::byte> blob) {
  check(sqlite3_bind_blob64(statement_, parameter,
                            blob.data() ? static_cast<const void*>(blob.data()) : "", blob.size(),
                            SQLITE_STATIC));
  return *this;
}

bool Query::step() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  fail(connection_, result);
}

void Query::reset() { sqlite3_reset(statement_); }

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
  if (result != SQLITE_OK) fail(connection, result);
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

Database::Statement Database::prepare(const char* sql, unsigned flags) {
  sqlite3_stmt* statement = nullptr;
  const int result = sqlite3_prepare_v3(connection_.get(), sql, -1, flags, &statement, nullptr);
  if (result != SQLITE_OK) fail(connection_.get(), result);
  return Statement(statement);
}

Query Database::query(const char* sql) {
  Statement& statement = statements_[sql];
  if (!statement) statement = prepare(sql, SQLITE_PREPARE_PERSISTENT);
  return Query(connection_.get(), statement.get());
}

void Database::execute(const char* sql) {
  const int result = sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) fail(connection_.get(), result);
}

std::int64_t Database::integer(const char* sql) {
  const Statement statement = prepare(sql, 0);
  Query query(connection_.get(), statement.get());
  return query.step() ? query.integer(0) : 0;
}

std::string Database::text(const char* sql) {
  const Statement statement = prepare(sql, 0);
  Query query(connection_.get(), statement.get());
  return query.step() ? query.text(0) : std::string();
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

WriteTransaction::WriteTransaction(Database& database) : database_(database) {
  database_.execute("BEGIN IMMEDIATE");
}

ReadTransaction::ReadTransaction(Database& database) : database_(database) {
  database_.execute("BEGIN");
}

ReadTransaction::~ReadTransaction() {
  if (database_.in_transaction())
    sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

WriteTransaction::~WriteTransaction() {
  // SQLite has rolled back by itself after some errors (disk full, I/O); a second ROLLBACK would
  // only be an error.
  if (database_.in_transaction())
    sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void WriteTransaction::commit() { database_.execute("COMMIT"); }

}  // namespace attnforge
