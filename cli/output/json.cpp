#include "cli/output/json.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "attnforge/json.h"

namespace attnforge::cli {

Json to_json(const DeviceFacts& device) { return Json::parse(attnforge::to_json(device)); }
Json to_json(const CompileInfo& compiled) { return Json::parse(attnforge::to_json(compiled)); }

std::string text_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
  return text;
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', true, Json::error_handler_t::replace);
}

void print_json(const Json& json) { fmt::print("{}\n", json_text(json)); }

}  // namespace attnforge::cli
