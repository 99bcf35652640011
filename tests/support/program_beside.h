// program_beside.h - programs of the folder that a test lies in, wherever that was moved to.
#pragma once

#include <filesystem>
#include <string>

namespace attnforge::test {

inline std::string program_beside(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace attnforge::test
