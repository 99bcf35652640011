#include "attnforge/json.h"

#include <nlohmann/json.hpp>

namespace attnforge {
namespace {

using Json = nlohmann::ordered_json;

std::string text(const Json& json) {
  // A compiler's log may hold any byte; JSON may not.
  return json.dump(2, ' ', true, Json::error_handler_t::replace);
}

Json json(const DeviceFacts& d) {
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

Json json(const Trial& trial) {
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

Json json(const CompileInfo& c) {
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

Json json(const LaunchInfo& l) {
  return {{"kernel", l.kernel},
          {"grid", l.grid},
          {"block", l.block},
          {"smem_bytes", l.smem_bytes},
          {"workspace_bytes", l.workspace_bytes}};
}

Json json(const TileInfo& t) {
  return {{"block_m", t.block_m}, {"block_n", t.block_n}, {"pack_gqa", t.pack_gqa}};
}

Json json(const CandidateInfo& c) {
  return {{"config", c.config}, {"estimate_us", c.estimate_us}, {"cut", c.cut}};
}

template <class Noun>
Json json(const std::vector<Noun>& all) {
  Json list = Json::array();
  for (const Noun& each : all) list.push_back(json(each));
  return list;
}

}  // namespace

std::string to_json(const DeviceFacts& device) { return text(json(device)); }
std::string to_json(const Trial& trial) { return text(json(trial)); }
std::string to_json(const CompileInfo& compiled) { return text(json(compiled)); }
std::string to_json(const LaunchInfo& launch) { return text(json(launch)); }

std::string to_json(const TileInfo& tiles) { return text(json(tiles)); }

std::string to_json(const Inspection& inspection) {
  return text({{"problem", to_string(inspection.problem)},
               {"device", json(inspection.device)},
               {"rejected_families", inspection.rejected_families},
               {"candidates", json(inspection.candidates)},
               {"config", inspection.config},
               {"provenance", to_string(inspection.provenance)},
               {"why", inspection.why},
               {"slow_path", inspection.slow_path},
               {"source_entry", inspection.source_entry},
               {"source", inspection.source},
               {"digest", inspection.digest},
               {"compiled", json(inspection.compiled)},
               {"ptx", inspection.ptx},
               {"sass", inspection.sass},
               {"tiles", json(inspection.tiles)},
               {"launches", json(inspection.launches)},
               {"measured_as", to_string(inspection.measured_as)},
               {"measured", json(inspection.measured)}});
}

std::string to_json(const TuneResult& result) {
  return text({{"problem", to_string(result.problem)},
               {"winner", result.winner},
               {"winner_us", result.winner_us},
               {"untuned", result.untuned},
               {"untuned_us", result.untuned_us},
               {"tried", result.tried},
               {"failed", result.failed},
               {"reused", result.reused},
               {"space", result.space},
               {"elapsed_s", result.elapsed_s},
               {"complete", result.complete},
               {"trials", json(result.trials)}});
}

}  // namespace attnforge
