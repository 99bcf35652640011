// list.cpp - attnforge list: kernel families, GPUs of this machine, archs.
#include <fmt/ranges.h>

#include "cli/output/table.h"
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

std::string families_text() {
  std::string text = bold("Kernel families, best first") + "\n";
  for (const FamilyInfo& family : list_families()) {
    text += fmt::format("  {}: {}\n    tier      {}\n    archs     {}\n    features  {}\n",
                        family.name, family.summary, family.tier, fmt::join(family.archs, ", "),
                        fmt::join(family.features, ", "));
  }
  return text;
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

int run_list(const ListArguments& a) {
  const auto wanted = [&](const char* section) {
    return a.section == "all" || a.section == section;
  };
  if (a.json) {
    Json json{{"attnforge", kVersion}};
    const auto device = [](const DeviceFacts& each) { return to_json(each); };
    if (wanted("families")) {
      json["families"] = json_list(list_families(), [](const FamilyInfo& family) {
        return ATTNFORGE_JSON(family, name, summary, tier, archs, features);
      });
    }
    if (wanted("devices")) json["devices"] = json_list(enumerate_devices(), device);
    if (wanted("archs")) json["archs"] = json_list(typical_devices(), device);
    print_json(json);
    return kExitOk;
  }
  std::vector<std::string> sections;
  if (wanted("families")) sections.push_back(families_text());
  if (wanted("devices")) {
    const std::vector<DeviceFacts> devices = enumerate_devices();
    sections.push_back(
        bold("GPUs of this machine") + "\n" +
        (devices.empty() ? "  none; attnforge doctor says why\n" : devices_table(devices, true)));
  }
  if (wanted("archs")) {
    sections.push_back(bold("Archs, each with the GPU that --arch stands for") + "\n" +
                       devices_table(typical_devices(), false));
  }
  write_out(fmt::format("{}", fmt::join(sections, "\n")));
  return kExitOk;
}

}  // namespace

Verb add_list(Command& program) {
  auto arguments = std::make_shared<ListArguments>();
  Command& verb = *program.add_subcommand("list", "List kernel families, GPUs and archs");
  verb.add_option("section", arguments->section, "families, devices, archs or all")
      ->check(one_of({"families", "devices", "archs", "all"}));
  verb.add_flag("--json", arguments->json, "As JSON");
  verb.footer(kListFooter);
  return [arguments] { return run_list(*arguments); };
}

}  // namespace attnforge::cli
