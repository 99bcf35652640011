// nvrtc_library.cpp - the places where libnvrtc may be, and dlopen.
#include "runtime/compile/nvrtc_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

namespace attnforge {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr int kOldestMajor = 12, kOldestMinor = 4;
// A folder of its own, which the search knows: Debian and Ubuntu refuse `pip install` outside of a
// virtual environment, and the toolkits among their packages are too old.
constexpr const char* kAdvice =
    "Install it with: python3 -m venv ~/.local/share/attnforge/nvrtc && "
    "~/.local/share/attnforge/nvrtc/bin/pip install nvidia-cuda-nvrtc "
    "(nvidia-cuda-nvrtc-cu12 where the driver is of CUDA 12). Or install NVIDIA's CUDA toolkit, "
    "12.4 or later, or set ATTNFORGE_NVRTC to the full path of a libnvrtc.so that is elsewhere.";

/// Folders in `parent` whose names begin with `prefix`, the highest name first (cuda-13.0 before
/// cuda-12.4).
std::vector<fs::path> folders(const fs::path& parent, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().rfind(prefix, 0) == 0 && it->is_directory(error))
      found.push_back(it->path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

/// The prefix of the first python3 in `path_list`, which is a virtual environment's or an
/// installation's; "" if none.
std::vector<fs::path> python_prefixes(std::string_view path_list) {
  for (const fs::path folder : folders_of(path_list)) {
    const fs::path python = folder / "python3";
    std::error_code error;
    if (!fs::exists(python, error)) continue;
    std::vector<fs::path> prefixes = {python.parent_path().parent_path()};
    const fs::path real = fs::canonical(python, error);
    if (!error) prefixes.push_back(real.parent_path().parent_path());
    return prefixes;
  }
  return {};
}

}  // namespace

std::string own_folder() {
  Dl_info info{};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  // The name of the main program may be relative to a working directory that has changed since.
  const fs::path file = fs::canonical(info.dli_fname, error);
  if (!error) return file.parent_path().string();
  const fs::path program = fs::canonical("/proc/self/exe", error);
  return error ? "" : program.parent_path().string();
}

namespace {

/// Whether this user may trust what lies in a folder that was found only by its position: nobody
/// else can put files there.
bool is_trusted(const fs::path& folder) {
  struct stat info {};
  return stat(folder.c_str(), &info) == 0 && (info.st_uid == 0 || info.st_uid == geteuid()) &&
         (info.st_mode & S_IWOTH) == 0;
}

/// `folder` and the three above it.
std::vector<fs::path> levels_above(fs::path folder) {
  std::vector<fs::path> levels;
  for (; levels.size() < 4 && folder.has_relative_path(); folder = folder.parent_path())
    levels.push_back(folder);
  return levels;
}

class Places {
 public:
  void add_name(const char* name) { places_.push_back(name); }

  /// Adds the NVRTC files of one folder.
  void add_folder(const fs::path& folder) {
    std::error_code error;
    for (const char* name : kNames) {
      const fs::path file = folder / name;
      if (!fs::exists(file, error)) continue;
      const fs::path real = fs::canonical(file, error);
      if (!error && seen_.insert(real.string()).second) places_.push_back(file.string());
    }
  }

  void add_toolkit(const fs::path& root) {
    for (const char* part : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
      add_folder(root / part);
  }

  /// Adds the wheels in a site-packages folder: nvidia/cu13/lib, nvidia/cuda_nvrtc/lib.
  void add_site_packages(const fs::path& site) {
    for (const fs::path& wheel : folders(site / "nvidia", "cu")) add_folder(wheel / "lib");
  }

  /// Adds what came with this library or program, whose folder is `own`: the copy in an installed
  /// package, and wheels in the site-packages folder that a wheel of attnforge was laid in.
  void add_package(const fs::path& own) {
    for (const fs::path& copy :
         {own / "attnforge", own / ATTNFORGE_LIBDIR_FROM_BINDIR "/attnforge"})
      if (is_trusted(copy)) add_folder(copy.lexically_normal());
    for (const fs::path& level : levels_above(own))
      if (is_trusted(level / "nvidia")) add_site_packages(level);
  }

  /// Adds those of a Python installation or virtual environment, e.g. /usr, /usr/local, .venv.
  void add_python(const fs::path& prefix) {
    for (const fs::path& version : folders(prefix / "lib", "python3"))
      for (const char* site : {"site-packages", "dist-packages"}) add_site_packages(version / site);
  }

  std::vector<std::string> take() { return std::move(places_); }

 private:
  std::vector<std::string> places_;
  std::set<std::string> seen_;
};

std::string path_of(const void* symbol, const std::string& fallback) {
  Dl_info info{};
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return fallback;
  std::error_code error;
  const fs::path real = fs::canonical(info.dli_fname, error);
  return error ? std::string(info.dli_fname) : real.string();
}

/// NVRTC asks the loader for its builtins by name. That finds those next to it, wherever they lie,
/// when they are open already; where there are none, NVRTC says so at the first compile.
void open_builtins(const NvrtcLibrary& library) {
  const fs::path folder = fs::path(library.path).parent_path();
  const std::string name = fmt::format("libnvrtc-builtins.so.{}.{}", library.major, library.minor);
  dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Opens one place. "" on success, else why it cannot be used.
std::string try_open(const std::string& place, NvrtcLibrary& library) {
  void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return reason ? reason : "unknown reason";
  }
  Nvrtc functions;
  std::string missing;
#define ATTNFORGE_RESOLVE(name)                                                      \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(handle, #name)); \
  if (functions.name == nullptr) missing += missing.empty() ? #name : ", " #name;
  ATTNFORGE_NVRTC_FUNCTIONS(ATTNFORGE_RESOLVE)
#undef ATTNFORGE_RESOLVE
  functions.nvrtcSetFlowCallback = reinterpret_cast<decltype(functions.nvrtcSetFlowCallback)>(
      dlsym(handle, "nvrtcSetFlowCallback"));
  std::string problem;
  int major = 0, minor = 0;
  if (!missing.empty())
    problem = fmt::format("it is not a usable NVRTC: it lacks {}", missing);
  else if (functions.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS)
    problem = "it does not tell its version";
  else if (major < kOldestMajor || (major == kOldestMajor && minor < kOldestMinor))
    problem = fmt::format("it is version {}.{}, older than {}.{}", major, minor, kOldestMajor,
                          kOldestMinor);
  if (!problem.empty()) {
    dlclose(handle);
    return problem;
  }
  library.functions = functions;
  library.path = path_of(reinterpret_cast<const void*>(functions.nvrtcVersion), place);
  library.major = major;
  library.minor = minor;
  open_builtins(library);
  return "";
}

}  // namespace

std::vector<std::string> folders_of(std::string_view list) {
  std::vector<std::string> folders;
  while (!list.empty()) {
    const std::string_view folder = list.substr(0, list.find(':'));
    if (!folder.empty()) folders.emplace_back(folder);
    list.remove_prefix(std::min(folder.size() + 1, list.size()));
  }
  return folders;
}

NvrtcSearch nvrtc_search(const std::function<const char*(const char*)>& environment) {
  const auto value = [&](const char* name) -> std::string {
    const char* text = environment(name);
    return text ? text : "";
  };
  NvrtcSearch search;
  if (std::string named = value("ATTNFORGE_NVRTC"); !named.empty()) {
    search.named = std::move(named);
    return search;
  }
  Places places;
  const fs::path own = own_folder();
  places.add_package(own);
  // The loader: LD_LIBRARY_PATH, ld.so.conf, the run path of a program that has the static library,
  // and a library that a framework has loaded into this process already.
  for (const char* name : kNames) places.add_name(name);
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = value(variable); !root.empty()) places.add_toolkit(root);
  places.add_toolkit("/usr/local/cuda");
  for (const fs::path& root : folders("/usr/local", "cuda-")) places.add_toolkit(root);
  places.add_toolkit("/opt/cuda");
  if (const std::string venv = value("VIRTUAL_ENV"); !venv.empty()) places.add_python(venv);
  for (const fs::path& prefix : python_prefixes(value("PATH"))) places.add_python(prefix);
  if (const std::string home = value("HOME"); !home.empty()) {
    places.add_python(fs::path(home) / ".local/share/attnforge/nvrtc");  // as kAdvice says
    places.add_python(fs::path(home) / ".local");
  }
  // A checkout has .venv next to its build folder.
  for (const fs::path& level : levels_above(own))
    if (is_trusted(level / ".venv")) places.add_python(level / ".venv");
  search.places = places.take();
  return search;
}

NvrtcLibrary open_nvrtc(const NvrtcSearch& search) {
  NvrtcLibrary library;
  if (search.named) {
    if (const std::string problem = try_open(*search.named, library); !problem.empty())
      library.problem = fmt::format(
          "ATTNFORGE_NVRTC names {}, which cannot be used: {}; unset it, or set it to the full "
          "path of a libnvrtc.so of CUDA "
          "12.4 or later",
          *search.named, problem);
    return library;
  }
  std::string tried;
  for (const std::string& place : search.places) {
    const std::string problem = try_open(place, library);
    if (problem.empty()) return library;
    // The loader's texts begin with the name that it was given.
    tried += problem.rfind(place, 0) == 0 ? "\n  " + problem
                                          : fmt::format("\n  {}: {}", place, problem);
  }
  library.problem = fmt::format("NVRTC (libnvrtc.so) was not found. {}\nTried:{}", kAdvice,
                                tried.empty() ? " nothing" : tried);
  return library;
}

}  // namespace attnforge
