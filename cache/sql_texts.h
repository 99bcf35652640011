// sql_texts.h - schema.sql as a string; CMakeLists.txt makes the definition from it.
#pragma once

namespace attnforge {

extern const char* const kSchemaSql;

}  // namespace attnforge
