// list.cpp - attnforge list: kernel families, GPUs of this machine, archs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "attnforge/inspect.h"
#include "attnforge/version.h"
#include "cli/options/command_line.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/terminal/terminal.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct ListArguments {
  std::string section = "all";
  bool json = false;
};

constexpr const char* kListFooter = R"(Examples:
  attnforge list
  attnforge list devices --json)";

Json families_json() {
  Json json = Json::array();
  for (const FamilyInfo& family : list_families())
    json.push_back(ATTNFORGE_JSON(family, name, summary, tier, archs, features));
  return json;
}

std::string families_text() {
  std::string text = bold("Kernel families, best first") + "\n";
  for (const FamilyInfo& family : list_families()) {
    text += fmt::format("  {}: {}\n    tier      {}\n    archs     {}\n    features  {}\n",
                        family.name, family.summary, family.tier, fmt::join(family.archs, ", "),
                        fmt::join(family.features, ", "));
  }
  return text;
}

Json devices_json(const std::vector<DeviceFacts>& devices) {
  Json json = Json::array();
  for (const DeviceFacts& device : devices) json.push_back(to_json(device));
  return json;
}

std::vector<DeviceFacts> typical_devices() {
  std::vector<DeviceFacts> devices;
  for (std::string_view arch : known_archs()) devices.push_back(typical_device(arch));
  return devices;
}

std::string devices_table(const std::vector<DeviceFacts>& devices, bool present) {
  Table table = table_of(
      {present ? "GPU" : "arch", "name", ">SMs", ">L2 MiB", ">memory GiB", ">SM MHz", ">smem KiB"});
  for (const DeviceFacts& d : devices) {
    table.rows.push_back({present ? fmt::format("{} (sm_{})", d.ordinal, d.arch.name)
                                  : fmt::format("sm_{}", d.arch.name),
                          d.name, std::to_string(d.num_sms), std::to_string(d.l2_bytes >> 20),
                          std::to_string(d.memory_bytes >> 30), std::to_string(d.sm_clock_mhz),
                          std::to_string(d.arch.smem_per_block_bytes / 1024)});
  }
  return aligned(table, "  ");
}

std::string devices_text(const std::vector<DeviceFacts>& devices) {
  const std::string title = bold("GPUs of this machine") + "\n";
  if (devices.empty()) return title + "  none; attnforge doctor says why\n";
  return title + devices_table(devices, true);
}

int run_list(const ListArguments& a) {
  const auto wanted = [&](const char* section) {
    return a.section == "all" || a.section == section;
  };
  if (a.json) {
    Json json{{"attnforge", kVersion}};
    if (wanted("families")) json["families"] = families_json();
    if (wanted("devices")) json["devices"] = devices_json(enumerate_devices());
    if (wanted("archs")) json["archs"] = devices_json(typical_devices());
    print_json(json);
    return kExitOk;
  }
  std::vector<std::string> sections;
  if (wanted("families")) sections.push_back(families_text());
  if (wanted("devices")) sections.push_back(devices_text(enumerate_devices()));
  if (wanted("archs")) {
    sections.push_back(bold("Archs, each with the GPU that --arch stands for") + "\n" +
                       devices_table(typical_devices(), false));
  }
  fmt::print("{}", fmt::join(sections, "\n"));
  return kExitOk;
}

}  // namespace

Verb add_list(Command& program) {
  auto arguments = std::make_shared<ListArguments>();
  Command* verb = program.add_subcommand("list", "List kernel families, GPUs and archs");
  verb->add_option("section", arguments->section, "families, devices, archs or all")
      ->check(one_of({"families", "devices", "archs", "all"}));
  verb->add_flag("--json", arguments->json, "As JSON");
  verb->footer(kListFooter);
  return [arguments] { return run_list(*arguments); };
}

}  // namespace attnforge::cli
