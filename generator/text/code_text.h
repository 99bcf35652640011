// code_text.h - what the compiler sees of a text: no comments, and no blank space that means
// nothing. Digests are made of it, so that an edit of a comment leaves them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attnforge {

/// Texts with equal results mean the same to a C++20 compiler. Comments and blank space become one
/// blank, or nothing beside brackets, commas and semicolons; directives have a line each; literals
/// stay as they are. nullopt for a text in which a comment, a blank or the number of a line may
/// mean something that is not looked into here: raw strings, macros with # or ##, __LINE__, assert,
/// #line, trigraphs, digraphs of #, a backslash that may join two halves of a word, a literal or a
/// comment without an end. About 0.4 ms for 80 KB.
std::optional<std::string> code_text(std::string_view text);

}  // namespace attnforge
