# Run as a script (cmake -P): writes OUTPUT, a C++ file that defines embedded_headers() over the headers named in LIST (one path
# below ROOT a line).
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/raw_string.cmake)
file(STRINGS ${LIST} paths)
list(SORT paths)
set(rows "")
set(row 0)
foreach(path IN LISTS paths)
  raw_string(${ROOT}/${path} literal)
  # With its length: compilers count characters of all headers together for a while, and then give up.
  string(APPEND rows "    {\"${path}\",${literal}sv,\n     &codes[${row}]},\n")
  math(EXPR row "${row} + 1")
endforeach()
list(LENGTH paths count)
file(WRITE ${OUTPUT} "// Generated from the headers under templates/.
#include \"templates/embedded.h\"

#include <string_view>

namespace attnforge {
namespace {
using namespace std::string_view_literals;
LazyCode codes[${count}];
constexpr Header kHeaders[${count}] = {
${rows}};
}  // namespace
std::span<const Header> embedded_headers() { return kHeaders; }
}  // namespace attnforge
")
