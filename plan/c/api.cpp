// api.cpp - the functions of include/attnforge/c.h, whose opening comment is the contract.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "attnforge/c.h"
#include "attnforge/device.h"
#include "attnforge/inspect.h"
#include "attnforge/json.h"
#include "attnforge/version.h"
#include "generator/problem/bucket.h"
#include "plan/c/convert.h"
#include "plan/c/error.h"
#include "plan/c/handle.h"
#include "plan/c/struct.h"
#include "plan/plan_state.h"

using namespace attnforge;

namespace {

void check_flags(std::string_view name, std::uint32_t flags, std::uint32_t known) {
  if ((flags & ~known) != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is {:#x}; this library knows only the bits {:#x}", name, flags, known));
  }
}

template <class Enum>
Enum checked_enum(std::string_view name, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be from 0 to {}", name,
                                                         value, static_cast<std::int32_t>(last)));
  }
  return static_cast<Enum>(value);
}

LogFunction log_from_c(attnforge_log_function log, void* user) {
  if (log == nullptr) return {};
  return [log, user](LogLevel level, std::string_view message) {
    log(user, static_cast<std::int32_t>(level), std::string(message).c_str());
  };
}

constexpr attnforge_context_desc kContextDefaults = ATTNFORGE_CONTEXT_DESC_INIT;
constexpr attnforge_stats kStatsDefaults = ATTNFORGE_STATS_INIT;
constexpr attnforge_plan_options kPlanDefaults = ATTNFORGE_PLAN_OPTIONS_INIT;
constexpr attnforge_tune_options kTuneDefaults = ATTNFORGE_TUNE_OPTIONS_INIT;
constexpr attnforge_inspect_options kInspectDefaults = ATTNFORGE_INSPECT_OPTIONS_INIT;
constexpr attnforge_tensors kTensorsDefaults = ATTNFORGE_TENSORS_INIT;

const Problem& problem_of(const attnforge_problem* problem) {
  return checked_handle(problem, "problem").problem;
}

void run_merge(const Plan& plan, const attnforge_tensors* tensors, void* stream) {
  std::array<AttentionState, kMostMergedStates> parts;
  const auto count = static_cast<std::size_t>(plan.problem().parts);
  plan.run(from_c(tensors, std::span(parts).first(count)), nullptr, stream);
}

template <class Struct>
Struct options_or_defaults(const Struct* given, const Struct& defaults, std::string_view name) {
  return given == nullptr ? defaults : read_struct(given, defaults, name);
}

}  // namespace

// ---- Versions and texts ----

uint32_t attnforge_abi_version(void) { return ATTNFORGE_ABI_VERSION; }
const char* attnforge_version(void) { return kVersion; }
void attnforge_free_string(char* text) { std::free(text); }

// ---- Problems ----

attnforge_status attnforge_problem_create(const char* text, attnforge_problem** problem) {
  return guarded([&] {
    required(problem, "problem") = nullptr;
    *problem = new attnforge_problem{.problem = parse_problem(&required(text, "text"))};
  });
}

void attnforge_problem_destroy(attnforge_problem* problem) { destroy(problem); }

attnforge_status attnforge_problem_set_sizes(attnforge_problem* problem,
                                             const attnforge_sizes* sizes) {
  return guarded([&] {
    Problem& given = checked_handle(problem, "problem").problem;
    const Problem changed = with_sizes(given, sizes, "sizes");
    validate(changed);
    given = changed;
  });
}

attnforge_status attnforge_problem_round(attnforge_problem* problem) {
  return guarded([&] {
    Problem& given = checked_handle(problem, "problem").problem;
    given = bucket(given);
  });
}

attnforge_status attnforge_problem_format(const attnforge_problem* problem, char* buffer,
                                          size_t capacity, size_t* length) {
  return guarded([&] {
    const std::string text = to_string(problem_of(problem));
    if (length != nullptr) *length = text.size();
    if (capacity == 0) return;
    required(buffer, "buffer");
    const std::size_t count = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), count);
    buffer[count] = '\0';
  });
}

// ---- Contexts ----

attnforge_status attnforge_context_create(const attnforge_context_desc* desc,
                                          attnforge_context** context) {
  return guarded([&] {
    required(context, "context") = nullptr;
    const attnforge_context_desc given = options_or_defaults(desc, kContextDefaults, "desc");
    check_flags("desc.flags", given.flags, ATTNFORGE_NO_JIT | ATTNFORGE_READ_ONLY_CACHE);
    auto made = std::make_unique<attnforge_context>();
    made->cache_path = or_empty(given.cache_path);
    made->no_jit = (given.flags & ATTNFORGE_NO_JIT) != 0;
    if (given.arch != nullptr) {
      made->facts = typical_device(given.arch);
    } else {
      made->device.emplace(
          DeviceOptions{.ordinal = given.device,
                        .cache_path = made->cache_path,
                        .log = log_from_c(given.log, given.log_user),
                        .read_only_cache = (given.flags & ATTNFORGE_READ_ONLY_CACHE) != 0});
      made->facts = made->device->facts();
    }
    *context = made.release();
  });
}

void attnforge_context_destroy(attnforge_context* context) { destroy(context); }

attnforge_status attnforge_context_set_no_jit(attnforge_context* context, int32_t no_jit) {
  return guarded([&] { checked_handle(context, "context").no_jit = no_jit != 0; });
}

attnforge_status attnforge_query(const attnforge_context* context,
                                 const attnforge_problem* problem) {
  return guarded([&] {
    const Support support = supported(problem_of(problem),
                                      checked_handle(context, "context").facts);
    return support.supported ? ATTNFORGE_OK : fail(ATTNFORGE_ERR_UNSUPPORTED, support.reason);
  });
}

attnforge_status attnforge_context_stats(attnforge_context* context, attnforge_stats* stats) {
  return guarded([&] {
    (void)attnforge::read_struct(stats, kStatsDefaults, "stats");
    const attnforge::Stats now = attnforge::stats(attnforge::device_of(context));
    attnforge::write_struct(stats, attnforge_stats{.struct_size = sizeof(attnforge_stats),
                                                   .compiles = now.compiles,
                                                   .plans = now.plans,
                                                   .untuned_plans = now.untuned_plans,
                                                   .shipped_plans = now.shipped_plans});
  });
}

// ---- Plans ----

attnforge_status attnforge_plan_create(attnforge_context* context, const attnforge_problem* problem,
                                       const attnforge_plan_options* options,
                                       attnforge_plan** plan) {
  return guarded([&] {
    required(plan, "plan") = nullptr;
    const attnforge_plan_options given = options_or_defaults(options, kPlanDefaults, "options");
    check_flags("options.flags", given.flags, ATTNFORGE_NO_JIT);
    const Problem& wanted = problem_of(problem);
    Device& device = device_of(context);
    const Plan made = make_plan(
        wanted, device,
        {.policy = checked_enum("options.policy", given.policy, Policy::kCachedOnly),
         .time_limit_s = given.time_limit_s,
         .allow_compile = !context->no_jit && (given.flags & ATTNFORGE_NO_JIT) == 0,
         .family = or_empty(given.family),
         .config = or_empty(given.config),
         .on_progress = progress_from_c(given.progress, given.progress_user, nullptr),
         .stream = given.stream});
    *plan = new attnforge_plan{.plan = made,
                               .facts = device.facts(),
                               .problem = to_string(wanted),
                               .config = made.config(),
                               .provenance = std::string(to_string(made.provenance()))};
  });
}

void attnforge_plan_destroy(attnforge_plan* plan) { destroy(plan); }

attnforge_status attnforge_plan_workspace(const attnforge_plan* plan,
                                          const attnforge_sizes* upper_bound, size_t* bytes) {
  return guarded([&] {
    const attnforge_plan& given = checked_handle(plan, "plan");
    std::size_t& out = required(bytes, "bytes");
    if (upper_bound == nullptr) {
      out = given.plan.workspace_bytes();
      return;
    }
    out = workspace_bound(with_sizes(given.plan.problem(), upper_bound, "upper_bound"),
                          given.config, given.facts);
  });
}

const char* attnforge_plan_problem(const attnforge_plan* plan) {
  return is_handle(plan) ? plan->problem.c_str() : "";
}
const char* attnforge_plan_config(const attnforge_plan* plan) {
  return is_handle(plan) ? plan->config.c_str() : "";
}
const char* attnforge_plan_provenance(const attnforge_plan* plan) {
  return is_handle(plan) ? plan->provenance.c_str() : "";
}
const char* attnforge_plan_layer(const attnforge_plan* plan) {
  return is_handle(plan) ? to_string(plan->plan.layer()).data() : "";
}
double attnforge_plan_measured_us(const attnforge_plan* plan) {
  return is_handle(plan) ? plan->plan.measured_us() : 0.0;
}

// ---- Runs ----

attnforge_status attnforge_contiguous_tensors(const attnforge_problem* problem,
                                              attnforge_tensors* tensors) {
  return guarded([&] {
    attnforge_tensors out = read_struct(tensors, kTensorsDefaults, "tensors", kFirstTensorsBytes);
    const Tensors strides = contiguous_tensors(problem_of(problem));
    const auto set = [](attnforge_tensor& to, const Tensor& from) {
      to = {to.data, from.stride_batch, from.stride_row, from.stride_head};
    };
    set(out.q, strides.q);
    set(out.k, strides.k);
    set(out.v, strides.v);
    set(out.o, strides.o);
    out.lse = {out.lse.data, strides.lse.stride_batch, strides.lse.stride_head};
    write_struct(tensors, out);
  });
}

attnforge_status attnforge_run(const attnforge_plan* plan, const attnforge_tensors* tensors,
                               void* workspace, size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const attnforge_plan& given = checked_handle(plan, "plan");
    const std::size_t needed = given.plan.workspace_bytes();
    if (needed > 0 && (workspace == nullptr || workspace_bytes < needed ||
                       reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)) [[unlikely]] {
      return fail(
          ATTNFORGE_ERR_WORKSPACE,
          fmt::format("the workspace is {} with {} bytes; this plan needs {} bytes aligned to 256",
                      workspace, workspace_bytes, needed));
    }
    if (given.plan.problem().parts != 0) [[unlikely]] {
      run_merge(given.plan, tensors, stream);
      return ATTNFORGE_OK;
    }
    given.plan.run(from_c(tensors), workspace, stream);
    return ATTNFORGE_OK;
  });
}

// ---- Tuning and inspection ----

attnforge_status attnforge_tune(attnforge_context* context, const attnforge_problem* problem,
                                const attnforge_tune_options* options, char** json) {
  return guarded([&] {
    const attnforge_tune_options given = options_or_defaults(options, kTuneDefaults, "options");
    const Problem& wanted = problem_of(problem);
    Device& device = device_of(context);
    if (context->no_jit) {
      throw Error(ErrorCode::kNotReady,
                  fmt::format("this context has ATTNFORGE_NO_JIT and does not tune \"{}\"",
                              to_string(wanted)));
    }
    bool stop = false;
    TuneOptions tune_options;
    tune_options.rigor = checked_enum("options.rigor", given.rigor, Rigor::kExhaustive);
    tune_options.time_limit_s = given.time_limit_s;
    tune_options.family = or_empty(given.family);
    tune_options.compile_threads = given.compile_threads;
    tune_options.retune = given.retune != 0;
    tune_options.seed = given.seed;
    tune_options.on_progress = progress_from_c(given.progress, given.progress_user, &stop);
    tune_options.cancelled = [&stop] { return stop; };
    const TuneResult result = tune(wanted, device, tune_options);
    if (json != nullptr) *json = copied(to_json(result, wanted, device.facts()));
  });
}

attnforge_status attnforge_inspect(const attnforge_context* context,
                                   const attnforge_problem* problem,
                                   const attnforge_inspect_options* options, char** json) {
  return guarded([&] {
    char*& out = required(json, "json");
    const attnforge_context& from = checked_handle(context, "context");
    const attnforge_inspect_options given = options_or_defaults(options, kInspectDefaults,
                                                                "options");
    check_flags("options.flags", given.flags,
                ATTNFORGE_INSPECT_COMPILE | ATTNFORGE_INSPECT_PTX | ATTNFORGE_INSPECT_SASS);
    const Inspection inspection = inspect(
        problem_of(problem), from.facts,
        {.config = or_empty(given.config),
         .family = or_empty(given.family),
         .cache_path = from.cache_path,
         .compile = (given.flags & ATTNFORGE_INSPECT_COMPILE) != 0,
         .ptx = (given.flags & ATTNFORGE_INSPECT_PTX) != 0,
         .sass = (given.flags & ATTNFORGE_INSPECT_SASS) != 0,
         .max_candidates = given.max_candidates});
    out = copied(to_json(inspection));
  });
}
