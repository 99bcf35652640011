#include "attnforge/json.h"

#include <nlohmann/json.hpp>

#include "attnforge/version.h"
#include "attnforge/work.h"

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
          {"arch", d.arch.name.empty() ? "" : "sm_" + std::string(d.arch.name)},
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
          {"role", l.role},
          {"grid", l.grid},
          {"block", l.block},
          {"smem_bytes", l.smem_bytes},
          {"workspace_bytes", l.workspace_bytes}};
}

Json json(const TileInfo& t) {
  return {{"block_m", t.block_m}, {"block_n", t.block_n}, {"pack_gqa", t.pack_gqa}};
}

/// A number, or null where it is unknown.
Json json(const Work& work) { return work.is_known() ? Json(work.flops) : Json(nullptr); }

Json json(const SeenKeys& sees) {
  const auto bound = [](const std::optional<std::int64_t>& keys) {
    return keys ? Json(*keys) : Json(nullptr);
  };
  return {
      {"left", bound(sees.left)}, {"right", bound(sees.right)}, {"more_hidden", sees.more_hidden}};
}

Json json(const Reach& r) {
  return {{"busy_sms", r.busy_sms},          {"time_us", r.time_us},
          {"measured", r.measured},          {"flops", json(r.work)},
          {"flops_unknown", r.work.unknown}, {"minimum_bytes", r.minimum_bytes},
          {"memory_us", r.memory_us}};
}

template <class Noun>
Json json(const std::vector<Noun>& all) {
  Json list = Json::array();
  for (const Noun& each : all) list.push_back(json(each));
  return list;
}

Json json(const AssemblyInfo& assembly) {
  Json pieces = Json::array(), steps = Json::array(), argument = Json::array();
  for (const PieceInfo& each : assembly.pieces)
    pieces.push_back({{"slot", each.slot},
                      {"type", each.type},
                      {"header", each.header},
                      {"changes", each.changes}});
  for (const StepInfo& each : assembly.steps)
    steps.push_back({{"kernel", each.kernel}, {"part", each.part}, {"after", each.after}});
  for (const ArgumentInfo& each : assembly.argument)
    argument.push_back({{"part", each.part}, {"bytes", each.bytes}});
  return {{"base", assembly.base}, {"pieces", pieces}, {"steps", steps}, {"argument", argument}};
}

}  // namespace

std::string to_json(const DeviceFacts& device) { return text(json(device)); }
std::string to_json(const Trial& trial) { return text(json(trial)); }
std::string to_json(const CompileInfo& compiled) { return text(json(compiled)); }
std::string to_json(const LaunchInfo& launch) { return text(json(launch)); }

std::string to_json(const TileInfo& tiles) { return text(json(tiles)); }

std::string to_json(const Inspection& i) {
  Json candidates = Json::array(), cut = Json::array();
  for (const CandidateInfo& each : i.candidates) {
    if (each.cut.empty()) {
      candidates.push_back({{"config", each.config}, {"estimate_us", each.estimate_us}});
    } else {
      cut.push_back({{"config", each.config}, {"reason", each.cut}});
    }
  }
  Json all{{"attnforge", kVersion},
           {"problem", to_string(i.problem)},
           {"flops", json(i.work)},
           {"flops_unknown", i.work.unknown},
           {"sees", json(i.sees)},
           {"minimum_bytes", minimum_bytes(i.problem)},
           {"device", json(i.device)},
           {"rejected_families", i.rejected_families},
           {"num_candidates", i.num_candidates},
           {"candidates", candidates},
           {"num_cut", i.num_cut},
           {"cut", cut},
           {"config", i.config},
           {"provenance", to_string(i.provenance)},
           {"why", i.why},
           {"slow_path", i.slow_path},
           {"digest", i.digest},
           {"assembly", json(i.assembly)},
           {"entry", i.source_entry},
           {"source", i.source},
           {"compiled", i.not_compiled.empty() ? json(i.compiled) : Json(nullptr)},
           {"not_compiled", i.not_compiled},
           {"tiles", json(i.tiles)},
           {"launches", json(i.launches)},
           {"measured_as", to_string(i.measured_as)},
           {"reach", json(i.reach)},
           {"measured", json(i.measured)},
           {"num_estimates", i.num_estimates}};
  if (!i.ptx.empty()) all["ptx"] = i.ptx;
  if (!i.sass.empty()) all["sass"] = i.sass;
  return text(all);
}

std::string to_json(const TuneResult& result, const Problem& asked, const DeviceFacts& device) {
  const Work work = timed_work(result.problem);
  return text({{"problem", to_string(asked)},
               {"measured_as", to_string(result.problem)},
               {"flops", json(work)},
               {"flops_unknown", work.unknown},
               {"device", json(device)},
               {"winner", result.winner},
               {"winner_us", result.winner_us},
               {"untuned", result.untuned},
               {"untuned_us", result.untuned_us},
               {"speed_up", speed_up(result)},
               {"tried", result.tried},
               {"failed", result.failed},
               {"reused", result.reused},
               {"space", result.space},
               {"left", result.left},
               {"left_s", result.left_s},
               {"elapsed_s", result.elapsed_s},
               {"complete", result.complete},
               {"not_kept", result.not_kept},
               {"trials", json(result.trials)}});
}

}  // namespace attnforge
