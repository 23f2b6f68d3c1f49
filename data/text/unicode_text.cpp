// ICU's regular expressions and normal forms over UTF-8. The only file that includes ICU.
#include "data/text/unicode_text.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/edits.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "sharding/base/fail.h"

namespace tessera::data::detail {

void require_unicode() {}

namespace {

// Returns whether the character has been part of Unicode since this version.
bool is_known(char32_t c, uint8_t version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] > 0 && age[0] <= version;  // 0: unassigned
}

// Rust's mapping (Unicode 17), with any version of ICU.
char32_t lower_case(char32_t c) {
  constexpr std::u32string_view with_next = U"\u1C89\uA7CC\uA7CE\uA7D2\uA7D4\uA7DA";
  constexpr CategorySet unassigned("Cn");
  if (with_next.find(c) != with_next.npos) return c + 1;
  if (c == 0xA7CB) return 0x264;
  if (c == 0xA7DC) return 0x19B;
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  return unassigned.contains(c) ? c : static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
}

}  // namespace

bool is_punctuation(char32_t c) {
  constexpr CategorySet punctuation("P"), symbols("S");
  if (c < 0x80) return punctuation.contains(c) || symbols.contains(c);
  // The categories of two characters changed since.
  return (punctuation.contains(c) && is_known(c, 8)) || c == 0x166D || c == 0x111C9;
}

bool is_combining_mark(char32_t c) {
  constexpr CategorySet marks("M");
  // The categories of three characters changed since.
  return (marks.contains(c) && is_known(c, 9) && c != 0x111C9) || c == 0x1CF2 || c == 0x1CF3;
}

AlignedText lower_case(const AlignedText& text) {
  AlignedText made;
  made.reserve(text.text().size());
  for (size_t i = 0, n; i < text.text().size(); i += n) {
    n = character_bytes(text.text()[i]);
    const char32_t c = character_at(text.text(), i);
    std::string lower;
    icu::UnicodeString(static_cast<UChar32>(lower_case(c))).toUTF8String(lower);
    made.append(c == 0x130 ? "i\u0307" : lower, text.origin(i, i + n));
  }
  return made;
}

namespace {

const icu::Normalizer2* instance(NormalForm form, UErrorCode& error) {
  using icu::Normalizer2;
  if (form == NormalForm::c) return Normalizer2::getNFCInstance(error);
  if (form == NormalForm::d) return Normalizer2::getNFDInstance(error);
  return form == NormalForm::kc ? Normalizer2::getNFKCInstance(error) : Normalizer2::getNFKDInstance(error);
}

// Uses Unicode 9, as `tokenizers` does (its crate unicode-normalization-alignments): younger characters are unchanged,
// even if ICU has data for them.
const icu::Normalizer2& normalizer(NormalForm form) {
  static const auto made = [] {
    UErrorCode error = U_ZERO_ERROR;
    static const icu::UnicodeSet known(icu::UnicodeString("[:age=9.0:]"), error);  // outlives the normalizers
    std::map<NormalForm, icu::FilteredNormalizer2> forms;
    for (const NormalForm one : {NormalForm::c, NormalForm::d, NormalForm::kc, NormalForm::kd})
      if (const icu::Normalizer2* found = instance(one, error); U_SUCCESS(error)) forms.try_emplace(one, *found, known);
    if (U_FAILURE(error)) fail(ErrorKind::other, "Tokenizer", std::string("ICU has no data: ") + u_errorName(error));
    return forms;
  }();
  return made.at(form);
}

std::vector<size_t> character_places(std::string_view text) {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); i += character_bytes(text[i])) places.push_back(i);
  return places;
}

// A character during normalization. `change`: 0 if it replaces one character of the text; 1 if it was inserted next to
// one that has its origin already; negative if it replaces one and -change more.
struct Made {
  UChar32 character;
  uint8_t combining_class;
  int change;
};

// Decomposes each character and puts marks into their canonical order (Unicode Standard Annex 15).
std::vector<Made> decomposed(std::string_view text, const icu::Normalizer2& composing) {
  std::vector<Made> made;
  const icu::UnicodeString all =
      icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  for (int32_t i = 0; i < all.length(); i = all.moveIndex32(i, 1)) {
    icu::UnicodeString parts;
    if (!composing.getDecomposition(all.char32At(i), parts)) parts = all.char32At(i);
    for (int32_t k = 0; k < parts.length(); k = parts.moveIndex32(k, 1))
      made.push_back({parts.char32At(k), composing.getCombiningClass(parts.char32At(k)), k ? 1 : 0});
  }
  for (auto begin = made.begin(); begin != made.end();) {
    const auto is_starter = [](const Made& m) { return m.combining_class == 0; };
    begin = std::find_if_not(begin, made.end(), is_starter);
    const auto end = std::find_if(begin, made.end(), is_starter);
    std::stable_sort(begin, end, [](const Made& a, const Made& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
  return made;
}

// Joins each mark to the starter before it, unless a mark of the same or a higher class is between them.
std::vector<Made> composed(const std::vector<Made>& parts, const icu::Normalizer2& composing) {
  std::vector<Made> made;
  std::optional<size_t> starter;
  for (const Made& part : parts) {
    const bool is_blocked =
        starter && *starter + 1 < made.size() && made.back().combining_class >= part.combining_class;
    const UChar32 pair = starter && !is_blocked ? composing.composePair(made[*starter].character, part.character) : -1;
    if (pair >= 0) {
      made[*starter].character = pair, made[*starter].change += part.change - 1;
      continue;
    }
    if (part.combining_class == 0) starter = made.size();
    made.push_back(part);
  }
  return made;
}

std::vector<Made> made_of(std::string_view was, NormalForm form) {
  const bool is_canonical = form == NormalForm::c || form == NormalForm::d;
  const icu::Normalizer2& composing = normalizer(is_canonical ? NormalForm::c : NormalForm::kc);
  std::vector<Made> made = decomposed(was, composing);
  return form == NormalForm::c || form == NormalForm::kc ? composed(made, composing) : made;
}

// Returns for each character of the normal form of `was` the position of the character it comes from, as `tokenizers`.
std::vector<size_t> sources_of(std::string_view was, const std::vector<Made>& made) {
  const std::vector<size_t> from = character_places(was);
  std::vector<size_t> sources;
  size_t next = 0;
  for (const Made& m : made) {
    const size_t here = m.change > 0 ? next - std::min<size_t>(next, 1) : next;
    sources.push_back(from[std::min(here, from.size() - 1)]);
    if (m.change <= 0) next += static_cast<size_t>(1 - m.change);
  }
  return sources;
}

// ICU sorts marks by insertion, in quadratic time. Real text has fewer than 256 marks on one letter; at 256, each mark
// costs 64 steps.
constexpr int max_marks_for_icu = 256;

bool has_many_marks(std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* decomposing = instance(NormalForm::kd, error);
  int marks = 0;
  for (size_t i = 0; i < text.size() && marks <= max_marks_for_icu; i += character_bytes(text[i])) {
    const bool is_mark = static_cast<unsigned char>(text[i]) >= 0x80 &&
                         !decomposing->hasBoundaryBefore(static_cast<UChar32>(character_at(text, i)));
    marks = is_mark ? marks + 1 : 0;
  }
  return marks > max_marks_for_icu;
}

AlignedText normalized_by_characters(const AlignedText& text, NormalForm form) {
  const std::vector<Made> made = made_of(text.text(), form);
  const std::vector<size_t> sources = sources_of(text.text(), made);
  AlignedText result;
  for (size_t i = 0; i < made.size(); ++i) {
    std::string character;
    icu::UnicodeString(made[i].character).toUTF8String(character);
    result.append(character, text.origin(sources[i], sources[i] + 1));
  }
  return result;
}

}  // namespace

AlignedText normalized(const AlignedText& text, NormalForm form) {
  if (has_many_marks(text.text())) return normalized_by_characters(text, form);
  UErrorCode error = U_ZERO_ERROR;
  icu::Edits edits;
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  normalizer(form).normalizeUTF8(0, {text.text().data(), static_cast<int32_t>(text.text().size())}, sink, &edits,
                                 error);
  if (U_FAILURE(error)) fail(ErrorKind::other, "Tokenizer", std::string("ICU: ") + u_errorName(error));
  if (!edits.hasChanges()) return text;
  AlignedText made;
  for (auto edit = edits.getFineIterator(); edit.next(error);) {
    const auto from = static_cast<size_t>(edit.sourceIndex()), to = static_cast<size_t>(edit.destinationIndex());
    const auto old_length = static_cast<size_t>(edit.oldLength()), new_length = static_cast<size_t>(edit.newLength());
    if (!edit.hasChange()) {
      made.append(text, from, from + old_length);
      continue;
    }
    const std::string_view was = text.text().substr(from, old_length);
    const std::string_view is = std::string_view(result).substr(to, new_length);
    const std::vector<size_t> places = character_places(is);
    const bool is_alone = character_bytes(was[0]) == was.size();
    std::vector<size_t> sources = is_alone ? std::vector<size_t>() : sources_of(was, made_of(was, form));
    sources.resize(places.size());
    for (size_t k = 0; k < places.size(); ++k) {
      const size_t place = places[k], source = from + sources[k];
      made.append(is.substr(place, character_bytes(is[place])), text.origin(source, source + 1));
    }
  }
  return made;
}

namespace {

// Returns the characters of the categories as a set of ICU's expressions spells them.
std::string spelled(CategorySet categories) {
  std::string text;
  for (const auto& [first, last] : categories.ranges())
    fmt::format_to(std::back_inserter(text), "\\U{:08X}-\\U{:08X}", uint32_t{first}, uint32_t{last});
  return text;
}

// A class of characters of Oniguruma, the engine of `tokenizers`. ICU gives the name another meaning.
struct Class {
  std::string_view name, negated;
  std::array<const char*, 5> categories;
  const char* more;        // as ICU spells them
  const char* alone = "";  // characters that the class has outside of sets only
};
constexpr Class classes[] = {
    {"\\s", "\\S", {}, "\\p{White_Space}"},
    {"\\h", "\\H", {}, "0-9A-Fa-f"},
    {"\\d", "\\D", {"Nd"}, ""},
    {"\\w",
     "\\W",
     {"L", "M", "Nd", "Nl", "Pc"},
     "\u24B6-\u24E9\U0001F130-\U0001F149\U0001F150-\U0001F169\U0001F170-\U0001F189",
     "\u00B2\u00B3\u00B9\u00BC-\u00BE"},
    {"[:punct:]", "[:^punct:]", {"P", "S"}, ""},
    {"\\p{Han}",
     "\\P{Han}",
     {},
     "\u2E80-\u2E99\u2E9B-\u2EF3\u2F00-\u2FD5\u3005\u3007\u3021-\u3029\u3038-\u303B\u3400-\u4DBF\u4E00-\u9FFF"
     "\uF900-\uFA6D\uFA70-\uFAD9\U00016FE2\U00016FE3\U00016FF0\U00016FF1\U00020000-\U0002A6DF\U0002A700-\U0002B739"
     "\U0002B740-\U0002B81D\U0002B820-\U0002CEA1\U0002CEB0-\U0002EBE0\U0002EBF0-\U0002EE5D\U0002F800-\U0002FA1D"
     "\U00030000-\U0003134A\U00031350-\U000323AF"}};

// Returns the size of a character or an escape with its braces, such as \p{L} and \x{41}.
size_t size_of_character(std::string_view pattern) {
  if (pattern[0] != '\\' || pattern.size() == 1) return 1;
  const bool has_braces =
      std::string_view("pPx").find(pattern[1]) != std::string_view::npos && pattern.substr(2, 1) == "{";
  return has_braces ? std::min(pattern.find('}'), pattern.size() - 1) + 1 : 2;
}

// A class at the beginning of an expression: the bytes of its name, and ICU's set of its characters.
struct FoundClass {
  size_t size = 0;  // 0: there is none
  std::string set;
};

FoundClass class_at(std::string_view pattern, bool is_in_set) {
  for (const Class& known : classes) {
    const bool is_negated = pattern.starts_with(known.negated);
    if (!is_negated && !pattern.starts_with(known.name)) continue;
    std::string set = known.more;
    if (!is_in_set) set += known.alone;
    for (const char* category : known.categories)
      if (category) set += spelled(CategorySet(category));
    return {is_negated ? known.negated.size() : known.name.size(), (is_negated ? "[^" : "[") + set + "]"};
  }
  if (!pattern.starts_with("\\p{") && !pattern.starts_with("\\P{")) return {};
  const size_t size = size_of_character(pattern);
  std::string_view name = pattern.substr(3, size - 4);
  const bool has_sign = name.starts_with('^'), is_negated = has_sign != (pattern[1] == 'P');
  if (has_sign) name.remove_prefix(1);
  if (name.empty() || name == "Any") return {};
  const bool is_category = name.size() <= 2 && !CategorySet(name).empty();
  const std::string set =
      is_category ? spelled(CategorySet(name)) : fmt::format("\\p{{{}}}&&[^{}]", name, spelled(CategorySet("Cn")));
  return {size, (is_negated ? "[^" : "[") + set + "]"};
}

// Returns the options of a group at the beginning of `pattern`, such as "(?im" of "(?im:"; empty if there is none.
std::string_view options_of(std::string_view pattern) {
  if (!pattern.starts_with("(?")) return {};
  const size_t end = std::min(pattern.find_first_not_of("imx-", 2), pattern.size());
  const bool is = end > 2 && end < pattern.size() && (pattern[end] == ':' || pattern[end] == ')');
  return pattern.substr(0, is ? end : 0);
}

// Returns a repeated repeat at the beginning of `pattern`, such as "{1,3}+"; empty if there is none.
std::string_view repeats_of(std::string_view pattern) {
  if (!pattern.starts_with("{")) return {};
  const size_t end = std::min(pattern.find_first_not_of("0123456789,", 1), pattern.size());
  return pattern.substr(0, pattern.substr(end).starts_with("}+") ? end + 2 : 0);
}

// Returns one repeat instead of a repeated repeat, in which ICU would read the last + as "possessive".
std::string_view repeated(std::string_view repeats, const std::string& where) {
  if (repeats.starts_with("{0,")) return "*";
  if (repeats.starts_with("{1,") || repeats.starts_with("{1}")) return "+";
  fail(ErrorKind::invalid_file, "Tokenizer", "{}: the regular expression has {}, which is not supported.", where,
       repeats);
}

// A class has up to 16 kB; expressions of models have at most 30 classes.
constexpr size_t max_pattern_bytes = size_t{1} << 21;

std::string in_icus_dialect(std::string_view pattern, const std::string& where) {
  std::string result;
  int open_sets = 0;
  while (!pattern.empty()) {
    const FoundClass found = class_at(pattern, open_sets > 0);
    const std::string_view options = options_of(pattern), repeats = repeats_of(pattern);
    size_t size = size_of_character(pattern);
    if (found.size > 0) {
      size = found.size;
      result += found.set;
    } else if (!options.empty() && open_sets == 0) {  // in Oniguruma, m means that `.` also matches a line feed
      size = options.size();
      std::replace_copy(options.begin(), options.end(), std::back_inserter(result), 'm', 's');
    } else if (!repeats.empty() && open_sets == 0) {
      size = repeats.size();
      result += repeated(repeats, where);
    } else {
      open_sets = std::max(0, open_sets + (pattern[0] == '[') - (pattern[0] == ']'));
      result += pattern.substr(0, size);
    }
    pattern.remove_prefix(size);
    if (result.size() > max_pattern_bytes)
      fail(ErrorKind::invalid_file, "Tokenizer", "{}: the regular expression has too many classes of characters.",
           where);
  }
  return result;
}

UBool on_tick(const void* budget, int32_t) { return static_cast<StepBudget*>(const_cast<void*>(budget))->tick(); }
UBool on_attempt(const void* budget, int64_t) { return static_cast<StepBudget*>(const_cast<void*>(budget))->attempt(); }

struct Compiled {
  std::unique_ptr<icu::RegexPattern> pattern;
  std::string text, where;

  void for_each_match(std::string_view in, StepBudget& budget, const std::function<void(size_t, size_t)>& visit) const {
    UErrorCode error = budget.attempt() ? U_ZERO_ERROR : U_REGEX_STOPPED_BY_CALLER;
    UText utext = UTEXT_INITIALIZER;
    const std::unique_ptr<UText, UText* (*)(UText*)> closed(
        utext_openUTF8(&utext, in.data(), static_cast<int64_t>(in.size()), &error), utext_close);
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(error));
    if (U_SUCCESS(error)) {
      matcher->setMatchCallback(on_tick, &budget, error);
      matcher->setFindProgressCallback(on_attempt, &budget, error);
      matcher->reset(&utext);
      int64_t last_end = -1;
      while (matcher->find(error) && U_SUCCESS(error)) {
        const int64_t begin = matcher->start64(error), end = matcher->end64(error);
        if (begin == end && begin == last_end) continue;
        visit(static_cast<size_t>(begin), static_cast<size_t>(end));
        last_end = end;
      }
    }
    if (U_FAILURE(error)) refuse(error, budget);
  }

  [[noreturn]] void refuse(UErrorCode error, const StepBudget& budget) const {
    const char* why = error == U_REGEX_STOPPED_BY_CALLER ? "takes too long"
                      : error == U_REGEX_STACK_OVERFLOW  ? "needs too much memory"
                                                         : u_errorName(error);
    fail(ErrorKind::invalid_file, "Tokenizer",
         "{}: for a text of {} bytes the regular expression {} {}. Shorten the text, or write an "
         "expression with fewer ways to match.",
         where, budget.text_bytes(), shortened(text), why);
  }
};

}  // namespace

Pattern regular_expression(const std::string& expression, const std::string& where) {
  UErrorCode error = U_ZERO_ERROR;
  UParseError place{};
  constexpr uint32_t flags = UREGEX_UNIX_LINES | UREGEX_MULTILINE;  // `.`, `^` and `$` as in Oniguruma
  const auto compiled = std::make_shared<Compiled>();
  compiled->text = expression, compiled->where = where;
  compiled->pattern.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(in_icus_dialect(expression, where)),
                                                     flags, place, error));
  if (U_FAILURE(error))
    fail(ErrorKind::invalid_file, "Tokenizer", "{}: the regular expression {} cannot be read: {}.", where,
         shortened(expression), u_errorName(error));
  // Each step back copies a frame with the positions of all groups; expressions of models have at most a few groups.
  constexpr int32_t max_groups = 64;
  const std::unique_ptr<icu::RegexMatcher> matcher(compiled->pattern->matcher(error));
  if (U_FAILURE(error) || matcher->groupCount() > max_groups)
    fail(ErrorKind::invalid_file, "Tokenizer",
         "{}: the regular expression {} has more than {} groups. Write (?:...) for groups.", where,
         shortened(expression), max_groups);
  return [compiled](std::string_view text, StepBudget& budget, const std::function<void(size_t, size_t)>& visit) {
    compiled->for_each_match(text, budget, visit);
  };
}

}  // namespace tessera::data::detail
