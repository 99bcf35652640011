// error.h - the border of the C API: exceptions become status codes and a text of the calling
// thread.
#pragma once

#include <new>
#include <string_view>
#include <type_traits>

#include "attnforge/c.h"
#include "attnforge/error.h"

namespace attnforge {

/// Sets what attnforge_last_error() says on this thread, cut to a few KiB. Never allocates. Returns
/// `status`.
attnforge_status fail(attnforge_status status, std::string_view text) noexcept;
void clear_error() noexcept;
attnforge_status status_of(ErrorCode code) noexcept;

/// Runs body(), which returns a status, or nothing where all went well, or throws. Every function
/// of the C API that can fail is inside of one.
template <class Body>
attnforge_status guarded(Body&& body) noexcept {
  clear_error();
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>)
      body();
    else
      return body();
    return ATTNFORGE_OK;
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ATTNFORGE_ERR_NO_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(ATTNFORGE_ERR_INTERNAL, error.what());
  } catch (...) {
    return fail(ATTNFORGE_ERR_INTERNAL, "an exception of unknown type, e.g. thrown by a callback");
  }
}

}  // namespace attnforge
