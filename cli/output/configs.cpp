#include "cli/output/configs.h"

#include <fmt/format.h>

#include "attnforge/inspect.h"
#include "cli/output/table.h"

namespace attnforge::cli {

std::string config_text(const std::string& config, bool full) {
  return full ? config : describe_config(config);
}

std::string tries_table(const std::vector<Trial>& tries, int most, bool full) {
  Table table = table_of({">time us", ">noise", ">estimate us", "status", "config"});
  for (const Trial& trial : tries) {
    if (most > 0 && static_cast<int>(table.rows.size()) == most) break;
    const Measurement& m = trial.measurement;
    const bool ok = m.status == Status::kOk;
    table.rows.push_back({ok ? fmt::format("{:.2f}", m.time_us) : "-",
                          ok ? fmt::format("{:.1f}%", 100 * m.noise) : "-",
                          fmt::format("{:.2f}", trial.estimate_us),
                          std::string(to_string(m.status)), config_text(trial.config, full)});
  }
  return aligned(table, "  ");
}

}  // namespace attnforge::cli
