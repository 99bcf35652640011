// environment.cpp - the table of environment variables. A test compares it with what the code
// reads.
#include "attnforge/inspect.h"

namespace attnforge {

const std::vector<EnvironmentVariable>& environment_variables() {
  static const std::vector<EnvironmentVariable> kTable = {
      {"ATTNFORGE_CACHE", "path of the database (SQLite); \":memory:\" keeps nothing on disk",
       "$XDG_CACHE_HOME/attnforge/attnforge.db, else ~/.cache/attnforge/attnforge.db"},
      {"ATTNFORGE_SITE_CACHE", "a database that is only read, where the first one has no winner",
       "none"},
      {"ATTNFORGE_SHIPPED_WINNERS",
       "file of winners that is used in place of those that ship with the library; 0: none",
       "the library's own"},
      {"ATTNFORGE_CACHE_WAL",
       "1: write-ahead log in the database, if SQLite is 3.51.3 or later and the file system is "
       "local",
       "a rollback journal"},
      {"ATTNFORGE_CACHE_TRUST",
       "any: use the database although other users could have written it or its folder",
       "such a database is refused: it decides which code runs"},
      {"ATTNFORGE_LOG", "least level of log messages: debug, info, warning, error or off",
       "warning"},
      {"ATTNFORGE_NVRTC", "the NVRTC library to compile with (CUDA 12.4 or later), and no other",
       "the copy or wheel beside the installed library, libnvrtc as the loader finds it, then "
       "toolkits and Python wheels in their usual places"},
      {"ATTNFORGE_WORKER",
       "the program attnforge, whose processes try kernels for searches; none: first runs go by "
       "what "
       "was tuned before; in_process: kernels are tried in the caller's process",
       "attnforge beside the library or in ../bin, else none"},
      {"ATTNFORGE_PRINT_LAUNCH",
       "1: log each kernel that plans launch once: grid, block, shared memory, registers, "
       "config",
       "launches are not logged"},
      {"ATTNFORGE_TRACE",
       "file to which each problem that a plan is asked for is added once, a line for attnforge "
       "tune --file",
       "problems are not kept"},
      {"ATTNFORGE_CHECK_INPUTS",
       "1: lengths and page tables are read from the GPU before a launch, which waits for the "
       "stream, and what is wrong with them is an error",
       "wrong lengths and page tables are found by no one"},
      {"ATTNFORGE_FAMILY", "experiments: only this kernel family serves problems, of any tier",
       "the products, else the ladder"},
      {"ATTNFORGE_BLOCK_N",
       "experiments: only configs with this many keys per tile, also ones that no search tries",
       "any"},
      {"ATTNFORGE_SMEM_BYTES",
       "experiments: shared memory that a block may take, as if the GPU had no more",
       "what the GPU has"},
      {"ATTNFORGE_TEMPLATES",
       "experiments: folder of template headers that replace those in the library of the "
       "same path, such as tile/softmax.cuh; not config.h and params_*.h",
       "the library's own"},
      {"ATTNFORGE_KERNEL_NAME", "experiments: symbol of the kernel, for profilers",
       "the family's, such as fwd_naive_fp32_d64_8x128"},
      {"ATTNFORGE_LIBRARY", "Python package: path of libattnforge.so",
       "the package's folder, the prefix that it is installed in, build folders of its checkout "
       "(release first), then the loader"},
      {"ATTNFORGE_TORCH_SHIM", "Python package: 0: torch calls by Python alone",
       "libattnforge_torch.so beside the library"},
      {"FLASH_ATTENTION_DETERMINISTIC",
       "Python package, for transformers: 1: gradients are deterministic", "they need not be"},
      {"VLLM_BATCH_INVARIANT", "Python package, for vLLM: 1: batch_invariant", "0"},
      {"XDG_CACHE_HOME", "folder for caches; a relative path is ignored", "~/.cache"},
      {"HOME", "home folder: of the cache, and of Python wheels of NVRTC",
       "the account's entry in the password database"},
      {"CUDA_HOME", "toolkit in which NVRTC and the disassembler are looked for",
       "$CUDA_PATH, /usr/local/cuda*, /opt/cuda"},
      {"CUDA_PATH", "the same as CUDA_HOME", "/usr/local/cuda*, /opt/cuda"},
      {"VIRTUAL_ENV", "Python environment in which a wheel of NVRTC is looked for",
       "the Python installations on $PATH"},
      {"PATH",
       "where nvdisasm, cuobjdump, gnuplot and Python installations with a wheel of NVRTC are "
       "looked "
       "for",
       "toolkit folders only, and no gnuplot"},
      {"TMPDIR", "folder of the file that a disassembler reads", "/tmp"},
      {"COLUMNS", "command line: columns where the terminal does not tell", "80"},
      {"NO_COLOR", "command line: set to anything, no colours", "colours on a terminal"},
      {"TERM", "command line: no colours if it is dumb", "no colours"},
      {"NVTX_INJECTION64_PATH",
       "set by profilers: plan, compile, tune and run become ranges on the time line", "no ranges"},
  };
  return kTable;
}

}  // namespace attnforge
