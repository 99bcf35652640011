// json_text.cpp - any texts and numbers in the library's nouns: the JSON of each is JSON, and its
// texts are those of the noun wherever they are UTF-8.
#include "attnforge/json.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/output/json.h"
#include "generator/arch.h"
#include "generator/text/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/any_problem.h"

namespace attnforge::fuzz {
namespace {

using Json = nlohmann::json;

constexpr test::MostSizes kSizes{.seqlen_bits = 10};  // pairs of masks are counted

double any_double(Bytes& bytes) {
  const std::uint64_t bits = bytes.bits(8);
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool is_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = text[at] == '\0' ? 1 : utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

Json parsed(const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const std::exception& error) {
    broken(std::string(error.what()) + " in " + text);
  }
}

void require_text(const Json& json, const char* key, const std::string& text) {
  if (is_utf8(text)) require(json.at(key) == text, std::string(key) + " is another text");
}

Trial any_trial(Bytes& bytes) {
  return {.config = bytes.text(64),
          .estimate_us = any_double(bytes),
          .measurement = {.status = static_cast<Status>(bytes.between(0, 4)),
                          .time_us = any_double(bytes),
                          .noise = any_double(bytes),
                          .samples = static_cast<int>(bytes.odd_number()),
                          .max_error = any_double(bytes),
                          .clock_mhz = any_double(bytes),
                          .detail = bytes.text(255)}};
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  DeviceFacts facts = typical_device(bytes.among(known_archs()));
  facts.name = bytes.text(255);
  facts.uuid = bytes.text(64);
  facts.mig_profile = bytes.text(32);
  facts.l2_bytes = bytes.odd_number();
  require_text(parsed(to_json(facts)), "name", facts.name);
  cli::to_json(facts);

  TuneResult result{.problem = test::any_problem(bytes, kSizes), .winner = bytes.text(64)};
  for (int i = static_cast<int>(bytes.between(0, 3)); i > 0; --i)
    result.trials.push_back(any_trial(bytes));
  result.winner_us = any_double(bytes);
  const Json json = parsed(to_json(result, result.problem, facts));
  require(parse_problem(json.at("problem").get<std::string>()) == result.problem, "the problem");
  require_text(json, "winner", result.winner);
  require(json.at("trials").size() == result.trials.size(), "the number of trials");

  Inspection inspection{.problem = result.problem, .device = facts};
  inspection.compiled.log = bytes.text(255);
  inspection.why = bytes.text(64);
  inspection.source = bytes.text(255);
  inspection.measured = result.trials;
  inspection.launches.push_back({.kernel = bytes.text(32)});
  inspection.compiled.occupancy = any_double(bytes);
  const Json inspected = parsed(to_json(inspection));
  require_text(inspected, "provenance", std::string(to_string(inspection.provenance)));
  require_text(inspected, "why", inspection.why);
  require_text(inspected.at("compiled"), "log", inspection.compiled.log);
  parsed(cli::json_text(cli::Json{{"text", bytes.text(255)}, {"number", any_double(bytes)}}));
  return 1;
}

std::vector<std::string> corpus() { return random_inputs(32, 800); }
std::vector<std::string> words() {
  return {"\"",           "\\",      "\xc3\xbc", "\xf0\x9f\x98\x80",
          "\xed\xa0\x80", "\x1b[0m", "\n",       "NVIDIA H200"};
}

}  // namespace attnforge::fuzz
