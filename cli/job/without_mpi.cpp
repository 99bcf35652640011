#include "cli/job/messages.h"
#include "cli/refuse.h"

namespace attnforge::cli {

std::unique_ptr<JobMessages> join_job() {
  refuse(
      kUnsupported,
      "--mpi: this attnforge was built without MPI. Build it with -DATTNFORGE_MPI=ON where mpicc "
      "is (Debian: libopenmpi-dev), or let each process take its share: --file with --shard "
      "auto, then attnforge cache export and import");
}

}  // namespace attnforge::cli
