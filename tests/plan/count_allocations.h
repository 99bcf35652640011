// count_allocations.h - how often this program has called operator new, and how many bytes of that
// are not deleted, with the word that malloc puts before each; linking it replaces the operator.
// Apart from the tests, so that the compiler does not see through it.
#pragma once

namespace attnforge::test {

long allocations();
long live_bytes();

}  // namespace attnforge::test
