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

namespace attnforge {

/// A failed SQLite call. Internal: what leaves the cache is an Error or a miss.
class SqliteError : public std::runtime_error {
 public:
  SqliteError(int extended_code, int system_errno, const std::string& message)
      : std::runtime_error(message), extended_code_(extended_code), system_errno_(system_errno) {}

  int code() const { return extended_code_ & 0xff; }  // SQLITE_BUSY, SQLITE_FULL, ...
  int extended_code() const { return extended_code_; }
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

/// A prepared statement while it is in use: bind, step, read columns. Columns and parameters count
/// from SQLite's 0 and 1. Its end resets it, which ends the read transaction that it may have
/// begun. Borrows from its Database.
class Query {
 public:
  Query(sqlite3* connection, sqlite3_stmt* statement)
      : connection_(connection), statement_(statement) {}
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  Query& bind(int parameter, std::string_view text);  // copied
  Query& bind(int parameter, const char* text) { return bind(parameter, std::string_view(text)); }
  Query& bind(int parameter, const std::string& text) {
    return bind(parameter, std::string_view(text));
  }
  Query& bind(int parameter, std::int64_t value);
  Query& bind(int parameter, int value) { return bind(parameter, std::int64_t{value}); }
  Query& bind(int parameter, bool value) { return bind(parameter, std::int64_t{value}); }
  Query& bind(int parameter, double value);                     // NaN becomes NULL
  Query& bind(int parameter, std::span<const std::byte> blob);  // borrowed until the Query ends

  /// True if there is a row. Throws SqliteError.
  bool step();
  /// step() for statements that give no row.
  void run() { step(); }
  /// Ready for new values and another run, e.g. in a loop of inserts.
  void reset();

  std::string text(int column) const;
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  double real(int column) const { return sqlite3_column_double(statement_, column); }
  bool null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  std::span<const std::byte> blob(int column) const;  // valid until the next step

 private:
  void check(int result) const;
  sqlite3* connection_;
  sqlite3_stmt* statement_;
};

/// One connection. Not thread-safe (opened without SQLite's mutexes): its owner has one.
class Database {
 public:
  /// `path` may be ":memory:". `flags` are SQLITE_OPEN_READWRITE and the like. Opens lazily: a file
  /// that is no database is noticed by the first statement. Throws SqliteError.
  Database(const std::string& path, int flags);
  Database(Database&&) noexcept = default;
  Database& operator=(Database&&) noexcept;

  /// Prepares once and keeps. `sql` must live as long as the program (a literal).
  Query query(const char* sql);
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
  Statement prepare(const char* sql, unsigned flags);

  std::unique_ptr<sqlite3, Close> connection_;
  std::map<const char*, Statement> statements_;  // by address
};

/// BEGIN IMMEDIATE ... COMMIT, rolled back unless committed. Writing starts with the write lock: a
/// read lock that is upgraded later would fail at once, without waiting, when two processes do it.
class WriteTransaction {
 public:
  explicit WriteTransaction(Database& database);
  ~WriteTransaction();
  WriteTransaction(const WriteTransaction&) = delete;
  WriteTransaction& operator=(const WriteTransaction&) = delete;
  void commit();

 private:
  Database& database_;
};

/// BEGIN ... ROLLBACK around several reads that should see one state. Queries inside must end
/// before it.
class ReadTransaction {
 public:
  explicit ReadTransaction(Database& database);
  ~ReadTransaction();
  ReadTransaction(const ReadTransaction&) = delete;
  ReadTransaction& operator=(const ReadTransaction&) = delete;

 private:
  Database& database_;
};

}  // namespace attnforge
