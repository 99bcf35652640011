# Run at build time (cmake -P): writes OUTPUT, a C++ file that defines page_file() over the FILES of ROOT (names, one list).
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/raw_string.cmake)
set(rows "")
foreach(name IN LISTS FILES)
  raw_string(${ROOT}/${name} literal)
  string(APPEND rows "    {\"${name}\",${literal}},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from the files of cli/page/.
#include <fmt/format.h>

#include <string_view>

#include \"attnforge/error.h\"
#include \"cli/page/page.h\"

namespace attnforge::cli {
namespace {
struct File {
  std::string_view name, text;
};
constexpr File kFiles[] = {
${rows}};
}  // namespace
std::string_view page_file(std::string_view name) {
  for (const File& file : kFiles)
    if (file.name == name) return file.text;
  throw Error(ErrorCode::kInternal, fmt::format(\"no file cli/page/{} was embedded\", name));
}
}  // namespace attnforge::cli
")
