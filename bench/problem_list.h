// problem_list.h - reads the problem lists of bench/problems/: a problem a line, # begins a
// comment.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "attnforge/problem.h"

inline std::vector<attnforge::Problem> read_problem_list(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read the problem list " + path);
  std::vector<attnforge::Problem> problems;
  for (std::string line; std::getline(file, line);) {
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t") != std::string::npos)
      problems.push_back(attnforge::parse_problem(line));
  }
  return problems;
}
