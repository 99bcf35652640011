#include "generator/user_code/code_names.h"

#include <algorithm>
#include <span>

namespace attnforge {
namespace {

bool is_listed(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::string_view first = list.substr(0, list.find(' '));
    if (first == word) return true;
    list.remove_prefix(std::min(list.size(), first.size() + 1));
  }
  return false;
}

/// Words by which a text would be more than an expression over numbers.
constexpr std::string_view kNoExpression = "asm __asm _Pragma import module export";

constexpr std::string_view kOfCpp =
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t "
    "char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr "
    "constinit continue decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if import inline int long module mutable namespace new "
    "noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires return short signed sizeof static static_assert static_cast struct "
    "switch template this thread_local throw true try typedef typeid typename union unsigned using "
    "virtual void volatile wchar_t while xor xor_eq";

constexpr std::string_view kOfTexts = "s batch head q k seqlen_q seqlen_kv";

/// What the lines around a text name (templates/parts/user_code/host.cpp), which an argument would
/// hide. A test compiles arguments of all other names that these lines have.
constexpr std::string_view kOfLines =
    "S Tanh kTerm Argument i64 UserArray WideArray ReadArray Fp16 Bf16 u32 value_of_score "
    "value_of_mask "
    "tanh tanhf";

/// NVRTC's macros that no prefix tells. A test looks for all that its library defines.
constexpr std::string_view kMacros =
    "NULL NOMINMAX STD THROWBADALLOC CU_UUID_HAS_BEEN_DEFINED alloca assert va_arg va_copy va_end "
    "va_start warpSize";
constexpr std::string_view kPrefixes[] = {"cuda", "CUDA", "NV_"};

/// Words that begin with two underscores and stand for the same numbers wherever they are compiled.
/// All others are refused, unknown ones too: __has_include reads the file system,
/// __TIME__ and __builtin_LINE() differ each time.
constexpr std::string_view kIntrinsics =
    "__brev __brevll __byte_perm __clz __clzll __cosf __exp10f __expf __fdividef "
    "__ffs __ffsll __fns __hadd __log10f __log2f __logf __mul24 __mul64hi __mulhi __popc __popcll "
    "__powf __rhadd __sad __saturatef __sincosf __sinf __tanf __tanhf __uhadd __umul24 __umul64hi "
    "__umulhi __urhadd __usad __ldca __ldcg __ldcs __ldcv __ldg __ldlu";
/// Prefixes of the words that have types and a rounding in their names.
constexpr std::string_view kIntrinsicPrefixes[] = {
    "__dadd_",   "__ddiv_",     "__dmul_",        "__double2",      "__double_as_", "__dp2a_",
    "__dp4a",    "__drcp_",     "__dsqrt_",       "__dsub_",        "__fadd_",      "__fdiv_",
    "__float2",  "__float_as_", "__fma_",         "__fmaf_",        "__fmul_",      "__frcp_",
    "__frsqrt_", "__fsqrt_",    "__fsub_",        "__funnelshift_", "__hiloint2",   "__int2",
    "__int_as_", "__ll2",       "__longlong_as_", "__uint2",        "__uint_as_",   "__ull2",
    "__vabs",    "__vadd",      "__vavg",         "__vcmp",         "__vhadd",      "__viadd",
    "__vibm",    "__vim",       "__vmax",         "__vmin",         "__vneg",       "__vsad",
    "__vset",    "__vsub"};

bool begins_as(std::string_view word, std::span<const std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view p) { return word.starts_with(p); });
}

}  // namespace

std::string_view why_no_word(std::string_view word) {
  if (is_listed(kNoExpression, word)) return "an expression cannot have";
  if (word.starts_with("__") && !is_listed(kIntrinsics, word) &&
      !begins_as(word, kIntrinsicPrefixes)) {
    return "is the compiler's: what it stands for may differ each time that a text is compiled; of "
           "words with two underscores before them CUDA's functions of numbers are allowed, such "
           "as __expf, __fdividef, __float2int_rn and __ldg";
  }
  return "";
}

std::string_view why_no_argument(std::string_view name) {
  if (is_listed(kOfTexts, name)) return "every text knows as something else";
  if (is_listed(kOfCpp, name)) return "is a word of C++";
  const bool is_reserved = name.find("__") != name.npos ||
                           (name.size() > 1 && name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z');
  if (is_reserved) return "is reserved for the compiler";
  if (is_listed(kOfLines, name) || name.starts_with("attnforge") || name.starts_with("ATTNFORGE"))
    return "is a name of the code around texts";
  if (is_listed(kMacros, name) || begins_as(name, kPrefixes)) return "is a name of CUDA's";
  return "";
}

}  // namespace attnforge
