# Run as a script (cmake -P): writes OUTPUT, a C++ file that defines embedded_headers() over the headers named in LIST (one path
# below ROOT a line). Text goes in as raw strings of at most 8 KiB: compilers need not take longer ones.
file(STRINGS ${LIST} paths)
list(SORT paths)
set(delimiter "attnforge_header")
set(rows "")
set(row 0)
foreach(path IN LISTS paths)
  file(READ ${ROOT}/${path} text)
  if(text MATCHES "[^\t\n -~]")
    message(FATAL_ERROR "templates/${path}: holds a character that is not printable ASCII")
  endif()
  string(FIND "${text}" ")${delimiter}\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "templates/${path}: holds the delimiter of the raw string that it is embedded in")
  endif()
  string(LENGTH "${text}" length)
  set(literal "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8192 chunk)
    string(APPEND literal "\n     R\"${delimiter}(${chunk})${delimiter}\"")
    math(EXPR at "${at} + 8192")
  endwhile()
  if(length EQUAL 0)
    set(literal "\"\"")
  endif()
  string(APPEND rows "    {\"${path}\",${literal},\n     &codes[${row}]},\n")
  math(EXPR row "${row} + 1")
endforeach()
list(LENGTH paths count)
file(WRITE ${OUTPUT} "// Generated from the headers under templates/.
#include \"templates/embedded.h\"

namespace attnforge {
namespace {
LazyCode codes[${count}];
constexpr Header kHeaders[${count}] = {
${rows}};
}  // namespace
std::span<const Header> embedded_headers() { return kHeaders; }
}  // namespace attnforge
")
