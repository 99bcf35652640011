#include "attnforge/json.h"

#include <nlohmann/json.hpp>

#include "attnforge/measure.h"
#include "attnforge/version.h"

namespace attnforge {
namespace {

using Json = nlohmann::ordered_json;

/// The members of `noun` that are named, each with its name as its key.
#define ATTNFORGE_MEMBERS(noun, ...)                                                     \
  [&json_noun = noun] {                                                                  \
    Json all;                                                                            \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(ATTNFORGE_MEMBER, __VA_ARGS__)) return all; \
  }()
#define ATTNFORGE_MEMBER(name) all[#name] = json_noun.name;

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
  Json object = ATTNFORGE_MEMBERS(trial, config, estimate_us);
  object["status"] = to_string(m.status);
  object.update(ATTNFORGE_MEMBERS(m, time_us, noise, samples, max_error, clock_mhz, detail));
  return object;
}

Json json(const CompileInfo& c) {
  return ATTNFORGE_MEMBERS(c, ok, compile_ms, registers, spill_bytes, smem_bytes, blocks_per_sm,
                           occupancy, cubin_bytes, log);
}

Json json(const LaunchInfo& l) {
  return ATTNFORGE_MEMBERS(l, kernel, role, grid, block, smem_bytes, workspace_bytes);
}

Json json(const TileInfo& t) { return ATTNFORGE_MEMBERS(t, block_m, block_n, pack_gqa); }

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

Json json(const PieceInfo& p) { return ATTNFORGE_MEMBERS(p, slot, type, header, changes); }
Json json(const StepInfo& s) { return ATTNFORGE_MEMBERS(s, kernel, part, after); }
Json json(const ArgumentInfo& a) { return ATTNFORGE_MEMBERS(a, part, bytes); }

template <class Noun>
Json json(const std::vector<Noun>& all) {
  Json list = Json::array();
  for (const Noun& each : all) list.push_back(json(each));
  return list;
}

Json json(const AssemblyInfo& assembly) {
  return {{"base", assembly.base},
          {"pieces", json(assembly.pieces)},
          {"steps", json(assembly.steps)},
          {"argument", json(assembly.argument)}};
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
           {"layer", to_string(i.layer)},
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
  Json object{{"problem", to_string(asked)},
              {"measured_as", to_string(result.problem)},
              {"flops", json(work)},
              {"flops_unknown", work.unknown},
              {"device", json(device)}};
  object.update(ATTNFORGE_MEMBERS(result, winner, winner_us, untuned, untuned_us));
  object["speed_up"] = speed_up(result);
  object.update(ATTNFORGE_MEMBERS(result, tried, failed, reused, space, left, left_s, elapsed_s,
                                  complete, not_kept));
  object["trials"] = json(result.trials);
  return text(object);
}

}  // namespace attnforge
