// database.h - SQLite's C API as owners: connection, statement, transaction. Knows no table of
// ours.
#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace attnforge {

/// A failed SQLite call. Internal: what leaves the cache is an Error or a miss.
class SqliteError : public std::runtime_error {
 public:
  SqliteError(int extended_code, int system_errno, const std::string& message)
      : std::runtime_error(message), extended_code_(extended_code), system_errno_(system_errno) {}

  int code() const { return extended_code_ & 0xff; }  // SQLITE_BUSY, SQLITE_FULL, ...
  /// The file is damaged or no database at all: it can be replaced. Every row is stored together
  /// with those that it refers to, so one that they are missing for is damage too.
  bool corrupt() const {
    return code() == SQLITE_CORRUPT || code() == SQLITE_NOTADB ||
           extended_code_ == SQLITE_CONSTRAINT_FOREIGNKEY;
  }
  bool busy() const { return code() == SQLITE_BUSY || code() == SQLITE_LOCKED; }
  /// No space, no quota, or the process's file size limit. SQLite itself only calls the first one
  /// SQLITE_FULL.
  bool disk_full() const;
  /// The file or its folder cannot be written.
  bool read_only() const;
  /// The file was renamed or deleted by another process since it was opened.
  bool moved() const { return extended_code_ == SQLITE_READONLY_DBMOVED; }

 private:
  int extended_code_;
  int system_errno_;
};

/// Throws a SqliteError that is corrupt(): `index` named a row that is missing or another one.
[[noreturn]] void index_is_damaged(std::string_view index);

/// A prepared statement while it is in use: bind, step, read columns, which count from 0. Its end
/// resets it, which ends the read transaction that it may have begun. Borrows from its Database.
class Query {
 public:
  Query(sqlite3* connection, sqlite3_stmt* statement)
      : connection_(connection), statement_(statement) {}
  template <class... Values>
  Query(sqlite3* connection, sqlite3_stmt* statement, const Values&... values)
      : Query(connection, statement) {
    (bind(values), ...);
  }
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  /// Gives the next parameter a value. Texts are copied, blobs borrowed until the Query ends; NaN
  /// becomes NULL.
  template <class Value>
  Query& bind(const Value& value) {
    if constexpr (std::is_integral_v<Value>)
      check(sqlite3_bind_int64(statement_, ++bound_, value));
    else if constexpr (std::is_floating_point_v<Value>)
      check(sqlite3_bind_double(statement_, ++bound_, value));
    else if constexpr (std::is_convertible_v<const Value&, std::string_view>)
      bind_text(value);
    else
      bind_blob(value);
    return *this;
  }

  /// True if there is a row. Throws SqliteError.
  bool step();
  /// step() for statements that give no row.
  void run() { step(); }

  std::string text(int column) const;
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  double real(int column) const;  // NaN: NULL
  bool null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  std::span<const std::byte> blob(int column) const;  // valid until the next step
  /// Reads a column as what `value` is.
  template <class Value>
  void read(int column, Value& value) const {
    if constexpr (std::is_integral_v<Value>)
      value = static_cast<Value>(integer(column));
    else if constexpr (std::is_floating_point_v<Value>)
      value = real(column);
    else
      value = text(column);
  }

 private:
  void check(int result) const;
  void bind_text(std::string_view text);
  void bind_blob(std::span<const std::byte> blob);

  sqlite3* connection_;
  sqlite3_stmt* statement_;
  int bound_ = 0;  // parameters
};

/// XXH3-128 in 32 hexadecimal digits. SQL has `checksum(column, ...)`: that of the texts of its
/// arguments, which cannot run together. A row keeps that of its own key and facts, so that a row
/// that an index gives by mistake, or whose columns were damaged, is not taken for the row that was
/// looked up.
std::string checksum(std::span<const std::byte> bytes);

/// One connection. Not thread-safe (opened without SQLite's mutexes): its owner has one.
class Database {
 public:
  /// `path` may be ":memory:". `flags` are SQLITE_OPEN_READWRITE and the like. Opens lazily: a file
  /// that is no database is noticed by the first statement. Throws SqliteError.
  Database(const std::string& path, int flags);
  Database(Database&&) noexcept = default;
  Database& operator=(Database&&) noexcept;

  /// With `values` bound to its parameters, in their order. Prepares once and keeps: `sql` must
  /// live as long as the program (a literal).
  template <class... Values>
  Query query(const char* sql, const Values&... values) {
    return Query(connection_.get(), statement(sql), values...);
  }
  /// Any number of statements, results thrown away.
  void execute(const char* sql);
  void execute(const std::string& sql) { execute(sql.c_str()); }
  /// First column of the first row of `sql`.
  std::int64_t integer(const char* sql);
  std::string text(const char* sql);

  int changes() const { return sqlite3_changes(connection_.get()); }
  /// How long a statement waits for another process's lock before SQLITE_BUSY.
  void wait_for_locks(int milliseconds);
  bool in_transaction() const { return sqlite3_get_autocommit(connection_.get()) == 0; }
  /// True if the file was renamed or deleted since it was opened.
  bool moved() const;
  sqlite3* handle() { return connection_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;
  sqlite3_stmt* statement(const char* sql);

  std::unique_ptr<sqlite3, Close> connection_;
  std::map<const char*, Statement> statements_;  // by address
};

/// Rolled back unless committed. Queries inside must end before it.
class Transaction {
 public:
  Transaction(Database& database, const char* begin) : database_(database) {
    database_.execute(begin);
  }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() { database_.execute("COMMIT"); }

 private:
  Database& database_;
};

/// Writing starts with the write lock: a read lock that is upgraded later would fail at once,
/// without waiting, when two processes do it.
struct WriteTransaction : Transaction {
  explicit WriteTransaction(Database& database) : Transaction(database, "BEGIN IMMEDIATE") {}
};

/// Around several reads that should see one state.
struct ReadTransaction : Transaction {
  explicit ReadTransaction(Database& database) : Transaction(database, "BEGIN") {}
};

}  // namespace attnforge
