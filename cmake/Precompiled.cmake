# attnforge_precompiled(TARGET [<header>...]): headers of the standard library and of fmt, and these, are parsed once for all files of
# TARGET: most of a small file's compile time. attnforge_precompiled(TARGET REUSE_FROM OTHER): with OTHER's, which must have the same -O. For
# whole builds (ATTNFORGE_UNITY) by g++: what is edited is compiled without, where each file includes what it needs. ccache does not
# keep such objects: with it there are none.
set(ATTNFORGE_PRECOMPILED_HEADERS
  <algorithm> <array> <chrono> <cmath> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span>
  <sstream> <string> <string_view> <thread> <unordered_map> <variant> <vector> <fmt/format.h>)
function(attnforge_precompiled target)
  if(NOT ATTNFORGE_UNITY OR CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if("REUSE_FROM" IN_LIST ARGN)
    target_precompile_headers(${target} ${ARGN})
  else()
    target_precompile_headers(${target} PRIVATE ${ATTNFORGE_PRECOMPILED_HEADERS} ${ARGN})
  endif()
endfunction()
