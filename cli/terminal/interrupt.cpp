#include "cli/terminal/interrupt.h"

#include <signal.h>

#include <atomic>

namespace attnforge::cli {
namespace {

// Any thread may get the signal, and one a GPU asks: a sig_atomic_t is for one thread alone.
std::atomic<bool> noted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "else it may not be set in a signal handler");
struct sigaction previous_int, previous_term;

void note(int) { noted = true; }

}  // namespace

InterruptScope::InterruptScope() {
  noted = false;
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESETHAND | SA_RESTART;  // the second one does what it always does
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

bool interrupted() { return noted; }

}  // namespace attnforge::cli
