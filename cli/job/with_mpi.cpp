#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <list>

#include "cli/job/messages.h"
#include "cli/refuse.h"

#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace attnforge::cli {
namespace {

constexpr int kTag = 46;

void check(int result, const char* what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  refuse(kUnsupported, "MPI cannot {}: {}", what, text);
}

int exit_code_in_time = 0;

// Where a process is lost while the job starts, MPI_Init() of the others does not end.
constexpr unsigned kMostStartSeconds = 120;
void end_start(int) {
  constexpr char kText[] =
      "attnforge: MPI did not start within 120 s: a process of the job was lost; start it again, "
      "what was stored is kept\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(1);
  _exit(1);
}

class MpiMessages : public JobMessages {
 public:
  MpiMessages() {
    signal(SIGALRM, end_start);
    alarm(kMostStartSeconds);
    check(MPI_Init(nullptr, nullptr), "begin");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "return errors");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm machine = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
          "find the processes of this machine");
    MPI_Comm_rank(machine, &local_rank_);
    MPI_Comm_size(machine, &local_size_);
    alarm(0);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }

  void send(int to, std::string text) override {
    finish_some(sends_);
    Message& message = sends_.emplace_back(Message{to, std::move(text), MPI_REQUEST_NULL});
    if (MPI_Isend(message.text.data(), static_cast<int>(message.text.size()), MPI_CHAR, to, kTag,
                  MPI_COMM_WORLD, &message.request) != MPI_SUCCESS)
      sends_.pop_back();
  }

  /// A sender may die amid a message, so that its rest never comes: others' are taken meanwhile.
  std::optional<Received> receive() override {
    int arrived = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    while (MPI_Improbe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &arrived, &handle, &status) ==
               MPI_SUCCESS &&
           arrived != 0) {
      int size = 0;
      MPI_Get_count(&status, MPI_CHAR, &size);
      Message& message = receives_.emplace_back(Message{
          status.MPI_SOURCE, std::string(static_cast<std::size_t>(size), '\0'), MPI_REQUEST_NULL});
      if (MPI_Imrecv(message.text.data(), size, MPI_CHAR, &handle, &message.request) != MPI_SUCCESS)
        receives_.pop_back();
    }
    for (auto it = receives_.begin(); it != receives_.end(); ++it) {
      if (!done(*it)) continue;
      Received received{it->other, std::move(it->text)};
      receives_.erase(it);
      return received;
    }
    return std::nullopt;
  }

  void leave(bool whole, int exit_code) override {
    for (int i = 0; i < 200 && !sends_.empty(); ++i) {
      finish_some(sends_);
      usleep(10'000);
    }
    // It waits for those that are lost, of which the first process alone may know.
    constexpr unsigned kMostSeconds = 5;
    if (whole && sends_.empty()) {
      std::fflush(nullptr);
      exit_code_in_time = exit_code;
      signal(SIGALRM, [](int) { _exit(exit_code_in_time); });
      alarm(kMostSeconds);
      MPI_Finalize();
      alarm(0);
      return;
    }
    std::fflush(nullptr);
    _exit(exit_code);
  }

 private:
  struct Message {
    int other;
    std::string text;
    MPI_Request request;
  };

  static bool done(Message& message) {
    int flag = 0;
    return MPI_Test(&message.request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag != 0;
  }
  static void finish_some(std::list<Message>& messages) { messages.remove_if(done); }

  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::list<Message> sends_, receives_;  // in flight; a list, since MPI borrows their texts
};

}  // namespace

std::unique_ptr<JobMessages> join_job() { return std::make_unique<MpiMessages>(); }

}  // namespace attnforge::cli
