// error_of.h - the Error that a call throws, for tests that look at its code and its words.
#pragma once

#include <gtest/gtest.h>

#include "attnforge/error.h"

namespace attnforge {

/// A failure of the test if there is none.
template <class Body>
Error error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, ""};
}

}  // namespace attnforge
