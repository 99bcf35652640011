// json.h - results as JSON text, for the C API. The names are those of the structs' fields.
#pragma once

#include <string>

#include "attnforge/inspect.h"
#include "attnforge/tune.h"

namespace attnforge {

std::string to_json(const Inspection& inspection);
std::string to_json(const TuneResult& result);

}  // namespace attnforge
