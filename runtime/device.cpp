#include "runtime/device.h"

#include <fmt/format.h>

#include "generator/arch.h"
#include "generator/text/throw_error.h"
#include "runtime/driver.h"
#include "runtime/release.h"

namespace attnforge {
namespace {

CUdevice device_at(int ordinal) {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "count the GPUs");
  if (ordinal < 0 || ordinal >= count)
    throw_error(ErrorCode::kInvalidArgument,
                "there is no GPU {}: the driver shows {} (ordinals 0 to {}); CUDA_VISIBLE_DEVICES "
                "may hide some",
                ordinal, count, count - 1);
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, ordinal), "open GPU {}", ordinal);
  return device;
}

int attribute(CUdevice device, CUdevice_attribute which, const char* name) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "read {} of a GPU", name);
  return value;
}

/// "GPU-1b9eafdf-..." as nvidia-smi writes it.
std::string uuid_text(const CUuuid& uuid, bool mig) {
  std::string text = mig ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

int device_count() {
  int count = 0;
  if (driver_problem().empty()) driver().cuDeviceGetCount(&count);
  return count;
}

std::string mig_profile(std::string_view device_name) {
  constexpr std::string_view kMark = " MIG ";
  const std::size_t at = device_name.find(kMark);
  return at == std::string_view::npos ? "" : std::string(device_name.substr(at + kMark.size()));
}

std::string_view compute_mode(int ordinal) {
  switch (attribute(device_at(ordinal), CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, "the compute mode")) {
    case CU_COMPUTEMODE_DEFAULT:
      return "default";
    case CU_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return kExclusiveMode;
    case CU_COMPUTEMODE_PROHIBITED:
      return kProhibitedMode;
    default:
      return "unknown";
  }
}

bool has_one_process(int ordinal) { return compute_mode(ordinal) == kExclusiveMode; }

DeviceFacts device_facts(int ordinal) {
  const CUdevice device = device_at(ordinal);
  DeviceFacts facts;
  facts.ordinal = ordinal;

  char name[256] = {};
  check(driver().cuDeviceGetName(name, sizeof(name), device), "read the name of a GPU");
  facts.name = name;
  facts.mig_profile = mig_profile(facts.name);

  const int sm = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                "the compute capability") +
                 attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                           "the compute capability");
  if (const Arch* arch = arch_for_sm(sm))
    facts.arch = arch_of_board(*arch, facts.name);
  else
    facts.arch.sm = sm;

  CUuuid uuid{};
  check(driver().cuDeviceGetUuid(&uuid, device), "read the UUID of a GPU");
  facts.uuid = uuid_text(uuid, !facts.mig_profile.empty());
  std::size_t memory_bytes = 0;
  check(driver().cuDeviceTotalMem(&memory_bytes, device), "read the memory size of a GPU");
  facts.memory_bytes = static_cast<std::int64_t>(memory_bytes);

  facts.num_sms = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "the number of SMs");
  facts.l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, "the size of the L2 cache");
  facts.sm_clock_mhz = attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, "the clock") / 1000;
  facts.memory_clock_mhz = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
                                     "the memory clock") /
                           1000;
  facts.memory_bus_bits = attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
                                    "the width of the memory bus");
  facts.driver_version = driver_version();
  return facts;
}

std::vector<DeviceFacts> enumerate_devices() {
  std::vector<DeviceFacts> devices;
  const int count = device_count();
  devices.reserve(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) devices.push_back(device_facts(ordinal));
  return devices;
}

PrimaryContext::PrimaryContext(int ordinal) : ordinal_(ordinal), device_(device_at(ordinal)) {}

PrimaryContext::~PrimaryContext() {
  if (context_ != nullptr)
    release([&](const Driver& cuda) { cuda.cuDevicePrimaryCtxRelease(device_); });
}

CUcontext PrimaryContext::get() {
  const std::lock_guard lock(mutex_);
  if (context_ == nullptr)
    check(driver().cuDevicePrimaryCtxRetain(&context_, device_),
          "retain the primary context of GPU {}", ordinal_);
  return context_;
}

ScopedContext::ScopedContext(PrimaryContext& primary) {
  CUcontext current = nullptr;
  check(driver().cuCtxGetCurrent(&current), "ask for the current CUDA context");
  if (current != nullptr) {
    CUdevice device = -1;
    check(driver().cuCtxGetDevice(&device), "ask for the current context's GPU");
    if (device == primary.device()) return;
  }
  check(driver().cuCtxPushCurrent(primary.get()), "make the primary context current");
  pushed_ = true;
}

ScopedContext::~ScopedContext() {
  CUcontext popped = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

}  // namespace attnforge
