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

Pattern regular_expression(const std::string&, const std::string&) { refuse(); }
void require_unicode() { refuse(); }

}  // namespace tessera::data::detail
