#include "plan/json.h"

#include <nlohmann/json.hpp>

namespace attnforge {
namespace {

using Json = nlohmann::ordered_json;

std::string text(const Json& json) {
  // A compiler's log may hold any byte; JSON may not.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Json trial(const Trial& trial) {
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

Json trials(const std::vector<Trial>& all) {
  Json list = Json::array();
  for (const Trial& each : all) list.push_back(trial(each));
  return list;
}

Json device(const DeviceFacts& facts) {
  return {{"name", facts.name},
          {"arch", facts.arch.name},
          {"ordinal", facts.ordinal},
          {"num_sms", facts.num_sms},
          {"l2_bytes", facts.l2_bytes},
          {"memory_bytes", facts.memory_bytes},
          {"sm_clock_mhz", facts.sm_clock_mhz},
          {"memory_clock_mhz", facts.memory_clock_mhz},
          {"memory_bus_bits", facts.memory_bus_bits},
          {"driver_version", facts.driver_version},
          {"mig_profile", facts.mig_profile}};
}

Json compiled(const CompileInfo& info) {
  return {{"ok", info.ok},
          {"log", info.log},
          {"compile_ms", info.compile_ms},
          {"registers", info.registers},
          {"spill_bytes", info.spill_bytes},
          {"smem_bytes", info.smem_bytes},
          {"blocks_per_sm", info.blocks_per_sm},
          {"occupancy", info.occupancy},
          {"cubin_bytes", info.cubin_bytes}};
}

}  // namespace

std::string to_json(const Inspection& inspection) {
  Json candidates = Json::array();
  for (const CandidateInfo& each : inspection.candidates) {
    candidates.push_back(
        {{"config", each.config}, {"estimate_us", each.estimate_us}, {"cut", each.cut}});
  }
  Json launches = Json::array();
  for (const LaunchInfo& each : inspection.launches) {
    launches.push_back({{"kernel", each.kernel},
                        {"grid", each.grid},
                        {"block", each.block},
                        {"smem_bytes", each.smem_bytes},
                        {"workspace_bytes", each.workspace_bytes}});
  }
  return text({{"problem", to_string(inspection.problem)},
               {"device", device(inspection.device)},
               {"rejected_families", inspection.rejected_families},
               {"candidates", std::move(candidates)},
               {"config", inspection.config},
               {"why", inspection.why},
               {"source_entry", inspection.source_entry},
               {"source", inspection.source},
               {"digest", inspection.digest},
               {"compiled", compiled(inspection.compiled)},
               {"ptx", inspection.ptx},
               {"sass", inspection.sass},
               {"launches", std::move(launches)},
               {"measured", trials(inspection.measured)}});
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
               {"trials", trials(result.trials)}});
}

}  // namespace attnforge
