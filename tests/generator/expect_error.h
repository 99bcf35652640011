// expect_error.h - the code and the message of the Error that a call throws.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "attnforge/error.h"

namespace attnforge {

/// The message, or "" with a test failure when nothing, or an Error of another code, is thrown.
template <class Call>
std::string error_message(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace attnforge
