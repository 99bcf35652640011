# {fmt} compiled once into our own objects: header-only costs seconds in every file, libfmt.so would have to be installed.
add_library(attnforge_fmt STATIC ${PROJECT_SOURCE_DIR}/generator/text/fmt_functions.cpp)
target_link_libraries(attnforge_fmt PRIVATE fmt::fmt-header-only)
# Inline functions of that one file are for the others: g++ keeps all of them, clang those that it neither inlines nor replaces.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(attnforge_fmt PRIVATE -fkeep-inline-functions)
else()
  target_compile_options(attnforge_fmt PRIVATE -O0 -Xclang -mno-constructor-aliases)
endif()
