// program_json_test.cpp - what --json prints has the keys of docs/JSON.md, all of them and no
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/program/program_fixture.h"

namespace attnforge::cli {
namespace {

using Json = nlohmann::json;

/// The keys of an object, and whether each is always there.
using Keys = std::map<std::string, bool>;

/// "### name", and below it a line of keys that are always there, "`key`, `key`.", and lines
/// "- `key`: is", where "*with --check*: " before what it is says that it may be missing.
std::map<std::string, Keys> documented() {
  std::ifstream file(std::string(ATTNFORGE_SOURCE_DIR) + "/docs/JSON.md");
  EXPECT_TRUE(file);
  std::map<std::string, Keys> objects;
  std::string object;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) object = line.starts_with("### ") ? line.substr(4) : "";
    const bool row = line.starts_with("- `");
    if (object.empty() || (!row && !line.starts_with("`"))) continue;
    const std::size_t is = row ? line.find(": ") + 1 : 0;
    const bool always = !row || !line.substr(is).starts_with(" *");
    for (std::size_t begin = line.find('`'); begin < (row ? is : line.size());
         begin = line.find('`', begin + 1)) {
      const std::size_t end = line.find('`', begin + 1);
      objects[object][line.substr(begin + 1, end - begin - 1)] = always;
      begin = end;
    }
  }
  return objects;
}

class JsonKeys : public Program {
 protected:
  void expect_keys(const Json& json, const std::string& object) {
    const auto found = documented_.find(object);
    ASSERT_NE(found, documented_.end()) << object << " is not in docs/JSON.md";
    ASSERT_TRUE(json.is_object()) << object << ": " << json.dump();
    for (const auto& [key, value] : json.items())
      EXPECT_TRUE(found->second.count(key)) << object << " has " << key << " undocumented";
    for (const auto& [key, always] : found->second)
      EXPECT_TRUE(!always || json.contains(key)) << object << " lacks " << key;
    seen_.insert(object);
  }
  void expect_each(const Json& array, const std::string& object) {
    ASSERT_TRUE(array.is_array()) << object;
    EXPECT_FALSE(array.empty()) << object;
    for (const Json& each : array) expect_keys(each, object);
  }
  Json json_of(const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_TRUE(Json::accept(outcome.out)) << outcome.out << outcome.err;
    return Json::accept(outcome.out) ? Json::parse(outcome.out) : Json::object();
  }
  /// On a GPU that computes nothing, but whose kernels take time.
  Json json_on_fake_gpu(const std::vector<std::string>& arguments) {
    const Outcome outcome = run_program(arguments,
                                        environment({{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
                                                     {"CUDA_VISIBLE_DEVICES", "0"},
                                                     {"FAKE_GPU_LAUNCH_US", "1"}}));
    EXPECT_TRUE(Json::accept(outcome.out)) << outcome.out << outcome.err;
    return Json::accept(outcome.out) ? Json::parse(outcome.out) : Json::object();
  }

  const std::map<std::string, Keys> documented_ = documented();
  std::set<std::string> seen_;
};

TEST_F(JsonKeys, AreThoseOfTheDocs) {
  const Json ranked = json_of(
      {"tune", "--arch", "sm_86", "--candidates", "1", "--json", "fwd fp16 seqlen=64 head_dim=64"});
  expect_keys(ranked, "tune");
  expect_each(ranked.at("results"), "ranked");
  expect_keys(ranked.at("results").at(0).at("ranked").at(0).at("compiled"), "compiled");

  const Json inspected = json_of(
      {"inspect", "--arch", "sm_86", "--json", "--cuts", "fwd fp16 seqlen=64 head_dim=64"});
  expect_keys(inspected, "inspect");
  expect_keys(inspected.at("device"), "device");
  expect_keys(inspected.at("assembly"), "assembly");
  expect_each(inspected.at("candidates"), "candidate");
  expect_each(inspected.at("cut"), "cut");
  expect_each(inspected.at("launches"), "launch");
  expect_keys(inspected.at("reach"), "reach");
  expect_keys(inspected.at("sees"), "sees");
  expect_keys(inspected.at("tiles"), "tiles");

  const Json report = json_of({"report", "--json"});
  expect_keys(report, "report");
  expect_each(report.at("rows"), "row");

  const Json ls = json_of({"cache", "ls", "--json"});
  expect_keys(ls, "cache ls");
  expect_each(ls.at("entries"), "entry");
  expect_keys(json_of({"cache", "show", "--json"}), "cache show");
  expect_keys(json_of({"cache", "stats", "--json"}), "cache stats");
  expect_keys(json_of({"cache", "verify", "--json"}), "cache verify");

  const Json list = json_of({"list", "--json"});
  expect_keys(list, "list");
  expect_each(list.at("families"), "family");
  expect_each(list.at("archs"), "device");

  const Json doctor = json_of({"doctor", "--json"});
  expect_keys(doctor, "doctor");
  expect_each(doctor.at("checks"), "finding");
  expect_each(doctor.at("environment"), "variable");

  const Json run = json_of(
      {"run", "--cpu", "--random", "1", "--check", "--json", "fwd fp16 seqlen=16 head_dim=16 lse"});
  expect_keys(run, "run");
  expect_keys(run.at("check"), "check");
  expect_keys(run.at("check").at("worst"), "element");
  expect_keys(run.at("check").at("worst_lse"), "element");

  const Json tuned = json_on_fake_gpu({"tune", "--json", "--rigor", "quick", "--top", "2",
                                       "--family", "fwd_naive", "fwd fp16 seqlen=64 head_dim=64"});
  expect_keys(tuned, "tune");
  expect_each(tuned.at("results"), "tuned");
  expect_each(tuned.at("results").at(0).at("trials"), "trial");

  const Json bench = json_on_fake_gpu({"bench", "--json", "--families", "fwd_naive,fwd_mma_sm80",
                                       "fwd fp32 seqlen=64 head_dim=64"});
  expect_keys(bench, "bench");
  for (const Json& row : bench.at("results")) {
    if (row.at("status") != "ok") expect_keys(row.at("error"), "error");
  }
  const Json timed = json_on_fake_gpu({"run", "--random", "1", "--json", "--family", "fwd_naive",
                                       "fwd fp16 seqlen=16 head_dim=16"});
  expect_keys(timed, "run");
  expect_keys(timed.at("time"), "time");

  for (const auto& [object, keys] : documented_)
    EXPECT_TRUE(seen_.count(object)) << object << " is documented and nothing here prints it";
}

}  // namespace
}  // namespace attnforge::cli
