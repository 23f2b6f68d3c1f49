// Replaces unicode_text.cpp in a build without ICU: a tokenizer cannot be opened.
#include "data/text/unicode_text.h"
#include "sharding/base/fail.h"

namespace tessera::data::detail {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorKind::invalid_file, "Tokenizer",
       "this library was built without ICU, whose Unicode tokenizers need. Install it (libicu-dev) and rebuild.");
}

}  // namespace

bool is_punctuation(char32_t) { refuse(); }
bool is_combining_mark(char32_t) { refuse(); }
AlignedText lower_case(const AlignedText&) { refuse(); }
AlignedText normalized(const AlignedText&, NormalForm) { refuse(); }

struct Regex::Compiled {};
Regex::Regex(const std::string&, const std::string&) { refuse(); }
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
void Regex::for_each_match(std::string_view, StepBudget&, const std::function<void(size_t, size_t)>&) const {
  refuse();
}

void require_unicode() { refuse(); }

}  // namespace tessera::data::detail
