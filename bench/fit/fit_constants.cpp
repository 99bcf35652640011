// fit_constants.cpp - finds the constants of a family's model for an arch in measurements, and
// writes them where the model reads them. Needs no GPU.
//
//     attnforge cache export --cache exhaustive.db exhaustive.jsonl
//     fit_constants fwd_mma_sm80 90a templates/fwd_mma_sm80/estimate_constants.inc <
//     exhaustive.jsonl
//
// Without a file it only prints. What is made least is the error of the logarithm of times, of
// fast configs above all, each problem counting the same; constants that the measurements do not
// need stay where they were. Nothing is written unless that error and how much slower the model's
// first choices are than the best have both not grown.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "bench/fit/minimize.h"
#include "generator/arch.h"
#include "templates/host/fitted_model.h"

namespace attnforge {
namespace {

struct Measured {
  Config config;
  double us;
};
struct Space {
  Problem problem;
  std::vector<Measured> configs;
  double best_us = 0;
};

/// Of one family and arch; what failed, was guessed, or has other fields than today's is left out.
/// Each class of GPUs has spaces of its own.
std::vector<Space> read_export(std::istream& lines, const FittedModel& model,
                               const DeviceFacts& device) {
  std::map<std::string, Space> spaces;
  const std::vector<double> today = model.constants(device.arch);
  int left_out = 0, of_others = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.at("kind") != "try" || row.at("status") != "ok" || row.at("estimated") == true)
      continue;
    Measured measured{parse_config(row.at("config").get<std::string>()), row.at("time_us")};
    if (measured.config.family != model.family) continue;
    const std::string text = row.at("problem"), gpu = row.at("device_class");
    if (gpu.find(fmt::format(" sm_{} ", device.arch.name)) == std::string::npos) {
      ++of_others;
      continue;
    }
    const Problem problem = parse_problem(text);
    try {
      model.estimate_us(measured.config, problem, device, today);
    } catch (const Error&) {
      ++left_out;
      continue;
    }
    Space& space = spaces[gpu + text];
    space.problem = problem;
    space.best_us = space.configs.empty() ? measured.us : std::min(space.best_us, measured.us);
    space.configs.push_back(std::move(measured));
  }
  if (left_out > 0) std::fprintf(stderr, "%d configs have other fields: left out\n", left_out);
  if (of_others > 0)
    std::fprintf(stderr, "%d configs are of other GPUs than sm_%s: left out\n", of_others,
                 std::string(device.arch.name).c_str());
  std::vector<Space> result;
  for (auto& [text, space] : spaces)
    if (space.configs.size() >= 8) result.push_back(std::move(space));
  return result;
}

struct Fit {
  const FittedModel& model;
  const DeviceFacts& device;
  const std::vector<Space>& spaces;
  std::vector<double> start;

  /// Mean square error of logarithms in a space; a config that takes twice the best's time counts
  /// for a sixteenth.
  double error(const Space& space, const std::vector<double>& constants) const {
    double sum = 0, weights = 0;
    for (const Measured& each : space.configs) {
      const double weight = std::pow(space.best_us / each.us, 4);
      const double estimate_us = model.estimate_us(each.config, space.problem, device, constants);
      sum += weight * std::pow(std::log(estimate_us / each.us), 2);
      weights += weight;
    }
    return sum / weights;
  }
  double error(const std::vector<double>& constants) const {
    double sum = 0;
    for (const Space& space : spaces) sum += error(space, constants);
    return sum / static_cast<double>(spaces.size());
  }

  /// How much slower than the best the model's first choice is.
  double first_to_best(const Space& space, const std::vector<double>& constants) const {
    const auto first = std::ranges::min_element(space.configs, {}, [&](const Measured& each) {
      return model.estimate_us(each.config, space.problem, device, constants);
    });
    return first->us / space.best_us;
  }
  double first_to_best(const std::vector<double>& constants) const {
    double sum = 0;
    for (const Space& space : spaces) sum += std::log(first_to_best(space, constants));
    return std::exp(sum / static_cast<double>(spaces.size()));
  }

  /// Factors of the start, as logarithms. A constant of 0 stays.
  std::vector<double> at(const Vector& logarithms) const {
    std::vector<double> constants = start;
    for (std::size_t i = 0; i < constants.size(); ++i) constants[i] *= std::exp(logarithms[i]);
    return constants;
  }

  std::vector<double> run() const {
    constexpr double kStay = 1e-3;  // of an error for a constant that is e times what it was
    constexpr int kEvaluations = 1500, kRestarts = 3;
    const auto objective = [&](const Vector& logarithms) {
      double away = 0;
      for (const double each : logarithms) away += each * each;
      const double e = error(at(logarithms));
      return std::isfinite(e) ? e + kStay * away : 1e9;
    };
    Vector best(start.size(), 0);
    for (int i = 0; i < kRestarts; ++i) best = minimize(objective, best, 0.2, kEvaluations);
    std::vector<double> constants = at(best);
    for (double& each : constants) each = std::stod(fmt::format("{:.4g}", each));
    return constants;
  }
};

std::string line_of(const FittedModel& model, std::string_view arch,
                    const std::vector<double>& constants) {
  std::string text;
  for (std::size_t i = 0; i < constants.size(); ++i)
    text += fmt::format("{}.{} = {:g}", i == 0 ? "" : ", ", model.names[i], constants[i]);
  return fmt::format("{{\"{}\", {{{}}}}},", arch, text);
}

/// In place of the arch's line, or as the last one.
void write_line(const std::string& path, std::string_view arch, const std::string& line) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string each; std::getline(file, each);) lines.push_back(each);
  if (lines.empty()) throw Error(ErrorCode::kInvalidArgument, path + ": no such file, or empty");
  const auto old = std::ranges::find_if(lines, [&](const std::string& each) {
    return each.starts_with(fmt::format("{{\"{}\"", arch));
  });
  if (old == lines.end()) {
    lines.push_back(line);
  } else {
    *old = line;
  }
  file.close();
  std::ofstream out(path, std::ios::trunc);
  for (const std::string& each : lines) out << each << '\n';
  if (!out.flush()) throw Error(ErrorCode::kInvalidArgument, path + " cannot be written");
}

int fit(const FittedModel& model, const std::string& arch, const std::string& path) {
  const DeviceFacts& device = typical_device(arch);
  const std::vector<Space> spaces = read_export(std::cin, model, device);
  if (spaces.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the export has no problem with 8 configs of {}", model.family));
  const Fit fit{model, device, spaces, model.constants(device.arch)};
  const std::vector<double> fitted = fit.run();
  std::printf("  error %%      first / best\nbefore  now   before    now  configs\n");
  const auto row = [&](double before, double now, double choice, double choice_now,
                       std::size_t configs, const std::string& name) {
    std::printf("%6.1f %6.1f  %6.3f %6.3f %6zu  %s\n", 100 * std::sqrt(before),
                100 * std::sqrt(now), choice, choice_now, configs, name.c_str());
  };
  std::size_t configs = 0;
  for (const Space& space : spaces) {
    configs += space.configs.size();
    row(fit.error(space, fit.start), fit.error(space, fitted), fit.first_to_best(space, fit.start),
        fit.first_to_best(space, fitted), space.configs.size(), to_string(space.problem));
  }
  const double before = fit.error(fit.start), now = fit.error(fitted);
  const double choice = fit.first_to_best(fit.start), choice_now = fit.first_to_best(fitted);
  row(before, now, choice, choice_now, configs, "all");
  const std::string line = line_of(model, device.arch.name, fitted);
  std::printf("%s\n", line.c_str());
  if (now >= before || choice_now > choice + 1e-9) {
    std::fprintf(stderr, "not better than today's constants: nothing is written\n");
    return 1;
  }
  if (!path.empty()) write_line(path, device.arch.name, line);
  return 0;
}

}  // namespace
}  // namespace attnforge

int main(int argc, char** argv) {
  using namespace attnforge;
  try {
    for (const FittedModel* model : {&fitted_fwd_mma_sm80, &fitted_bwd_mma_sm80})
      if (argc >= 3 && argc <= 4 && argv[1] == model->family)
        return fit(*model, argv[2], argc == 4 ? argv[3] : "");
    std::fprintf(stderr,
                 "usage: fit_constants fwd_mma_sm80|bwd_mma_sm80 ARCH [FILE.inc] < export.jsonl\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fit_constants: %s\n", error.what());
  }
  return 2;
}
