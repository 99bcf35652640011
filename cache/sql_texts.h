// sql_texts.h - the .sql files of this folder as strings; CMakeLists.txt makes the definitions from
// them.
#pragma once

namespace attnforge {

extern const char* const kSchemaSql;       // schema.sql
extern const char* const kFrom1BeforeSql;  // migrations/from_1_before.sql
extern const char* const kFrom1AfterSql;   // migrations/from_1_after.sql
extern const char* const kFrom2BeforeSql;  // migrations/from_2_before.sql
extern const char* const kFrom2AfterSql;   // migrations/from_2_after.sql
extern const char* const kFrom3Sql;        // migrations/from_3.sql
extern const char* const kFrom4Sql;        // migrations/from_4.sql

}  // namespace attnforge
