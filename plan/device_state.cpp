// device_state.cpp - opening a GPU: its context, its facts, its database.
#include "plan/device_state.h"

#include <fmt/format.h>

#include <cstdlib>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "plan/overrides.h"

namespace attnforge {
namespace {

CUcontext context_for(PrimaryContext& primary) {
  const ScopedContext scope(primary);
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "ask for the current CUDA context");
  return context;
}

}  // namespace

DeviceState::DeviceState(const DeviceOptions& options)
    : log(options.log),
      overrides(overrides_from_environment()),
      worker(worker_for(options.ordinal)),
      primary(options.ordinal),
      facts(limited(device_facts(options.ordinal), overrides)),
      device_class(attnforge::device_class(facts)),
      context(context_for(primary)),
      cache(options.cache_path, options.read_only_cache, log_function()) {
  if (const char* path = secure_getenv("ATTNFORGE_SITE_CACHE"); path != nullptr && *path != '\0')
    site.emplace(path, true, [this](LogLevel level, std::string_view message) {
      log.log(level, fmt::format("of ATTNFORGE_SITE_CACHE, {}", message));
    });
  log.info(
      fmt::format("opened GPU {} ({}), database {}", options.ordinal, device_class, cache.path()));
  if (const std::string forced = forced_text(overrides); !forced.empty())
    log.warning(fmt::format("the environment decides on kernels: {}", forced));
}

LogFunction DeviceState::log_function() const {
  return [this](LogLevel level, std::string_view message) { log.log(level, message); };
}

std::string driver_text(const DeviceFacts& facts) {
  return fmt::format("{}.{}", facts.driver_version / 1000, facts.driver_version % 1000 / 10);
}

Device::Device(const DeviceOptions& options) : state_(std::make_unique<DeviceState>(options)) {}
Device::~Device() {
  // A child that closed its parent's database would end leases, and transactions that it sees half.
  if (driver_of_a_parent()) (void)state_.release();
}
Device::Device(Device&&) noexcept = default;
Device& Device::operator=(Device&& other) noexcept {
  Device taken(std::move(other));
  state_.swap(taken.state_);
  return *this;
}

const DeviceFacts& Device::facts() const { return state_->facts; }

}  // namespace attnforge
