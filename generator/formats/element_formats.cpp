#include "generator/formats/element_formats.h"

#include <algorithm>

#include "attnforge/error.h"
#include "templates/shape.h"

namespace attnforge {

static_assert(std::ranges::all_of(kElementFormats,
                                  [](const ElementFormat& row) {
                                    const auto i = static_cast<int>(row.dtype);
                                    return &row == &kElementFormats[i] &&
                                           (is_blocks(row.dtype) || row.bits == element_bits(i));
                                  }),
              "rows are in the order of DType, and kernels know their bits");

/// Weak: tests link a table with a made-up row in its place.
[[gnu::weak]] std::span<const ElementFormat> element_formats() { return kElementFormats; }

const ElementFormat& format_of(DType dtype) {
  const std::span<const ElementFormat> rows = element_formats();
  const auto i = static_cast<std::size_t>(dtype);
  ATTNFORGE_ASSERT(i < rows.size(), "a dtype has a row of element_formats()");
  return rows[i];
}

std::string_view to_string(DType dtype) { return format_of(dtype).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (const ElementFormat& row : element_formats())
    if (row.name == name) return row.dtype;
  return {};
}

}  // namespace attnforge
