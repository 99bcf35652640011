#include "cli/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace attnforge::cli {

Json to_json(const DeviceFacts& d) {
  return {{"ordinal", d.ordinal},
          {"name", d.name},
          {"arch", d.arch.name},
          {"uuid", d.uuid},
          {"num_sms", d.num_sms},
          {"l2_bytes", d.l2_bytes},
          {"memory_bytes", d.memory_bytes},
          {"sm_clock_mhz", d.sm_clock_mhz},
          {"memory_clock_mhz", d.memory_clock_mhz},
          {"memory_bus_bits", d.memory_bus_bits},
          {"smem_per_block_bytes", d.arch.smem_per_block_bytes},
          {"driver_version", d.driver_version},
          {"mig_profile", d.mig_profile}};
}

Json to_json(const Trial& trial) {
  const Measurement& m = trial.measurement;
  return {{"config", trial.config},
          {"estimate_us", trial.estimate_us},
          {"status", to_string(m.status)},
          {"time_us", m.time_us},
          {"noise", m.noise},
          {"samples", m.samples},
          {"max_error", m.max_error},
          {"clock_mhz", m.clock_mhz},
          {"detail", m.detail}};
}

Json to_json(const CompileInfo& c) {
  return {{"ok", c.ok},
          {"compile_ms", c.compile_ms},
          {"registers", c.registers},
          {"spill_bytes", c.spill_bytes},
          {"smem_bytes", c.smem_bytes},
          {"blocks_per_sm", c.blocks_per_sm},
          {"occupancy", c.occupancy},
          {"cubin_bytes", c.cubin_bytes},
          {"log", c.log}};
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace attnforge::cli
