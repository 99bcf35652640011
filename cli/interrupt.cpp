#include "cli/interrupt.h"

#include <signal.h>

namespace attnforge::cli {
namespace {

volatile sig_atomic_t noted = 0;
struct sigaction previous_int, previous_term;

void note(int) { noted = 1; }

}  // namespace

InterruptScope::InterruptScope() {
  noted = 0;
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

bool interrupted() { return noted != 0; }

}  // namespace attnforge::cli
