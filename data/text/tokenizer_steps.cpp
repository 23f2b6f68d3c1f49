// The types of Normalizer, PreTokenizer, Decoder and PostProcessor of `tokenizers`.
#include "data/text/tokenizer_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <memory>
#include <span>
#include <utility>

#include "data/sources/text_source.h"
#include "data/text/word_patterns.h"

namespace tessera::data::detail {

namespace {

[[noreturn]] void refuse_type(const JsonPart& json, const std::string& type, const std::vector<std::string>& known) {
  json.refuse(
      fmt::format("the type \"{}\" is not supported, expected one of {}.", shortened(type), fmt::join(known, ", ")));
}

// The time for a text is proportional to the number of steps, and each set of a regular expression takes 7 kB. Model
// files have at most a dozen steps and a thousand bytes of expressions.
constexpr size_t max_steps = 64, max_expression_bytes = 16'384;

struct StepCounts {
  size_t steps = 0, bytes_of_expressions = 0;

  void add(const boost::json::value& json) {
    if (const auto* array = json.if_array())
      for (const boost::json::value& item : *array) add(item);
    if (const auto* object = json.if_object()) {
      steps += object->contains("type");
      for (const auto& [key, member] : *object) {
        if (key == "Regex" && member.is_string()) bytes_of_expressions += member.get_string().size();
        add(member);
      }
    }
  }
};

void check_sizes(const JsonPart& json) {
  StepCounts counts;
  counts.add(json.value);
  if (counts.steps > max_steps)
    json.refuse(fmt::format("{} steps given, expected at most {}.", counts.steps, max_steps));
  if (counts.bytes_of_expressions > max_expression_bytes)
    json.refuse(fmt::format("{} bytes of regular expressions given, expected at most {}.", counts.bytes_of_expressions,
                            max_expression_bytes));
}

// ---- patterns

using Visit = std::function<void(size_t, size_t)>;

// Returns a pattern that matches the string `what`.
Pattern literal(const JsonPart& json, const std::string& what) {
  constexpr size_t max_literal_bytes = 4096;  // the search compares all of it wherever its first byte occurs
  if (what.empty() || what.size() > max_literal_bytes)
    json.refuse(fmt::format("a string of {} bytes given, expected 1 to {}.", what.size(), max_literal_bytes));
  return [what](std::string_view text, StepBudget&, const Visit& visit) {
    for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size()))
      visit(at, at + what.size());
  };
}

Pattern words(WordEnd end_of) {
  return [=](std::string_view text, StepBudget&, const Visit& visit) {
    for (size_t begin = 0, end; begin < text.size(); begin = end) visit(begin, end = end_of(text, begin));
  };
}

Pattern pattern_of(const JsonPart& json) {
  if (json.has("Regex")) {
    const JsonPart regex = json.at("Regex");
    const WordEnd end_of = word_end_of(regex.text());
    return end_of ? words(end_of) : regular_expression(regex.text(), regex.place());
  }
  return literal(json.at("String"), json.at("String").text());
}

// Returns a pattern that matches each character of a kind.
Pattern pattern_of(bool (*is_kind)(char32_t)) {
  return [=](std::string_view text, StepBudget&, const Visit& visit) {
    for (size_t i = 0, n; i < text.size(); i += n) {
      n = character_bytes(text[i]);
      if (is_kind(character_at(text, i))) visit(i, i + n);
    }
  };
}

// ---- normalizers

AlignedText replaced(const AlignedText& text, const Pattern& pattern, const std::string& content, StepBudget& budget,
                     const std::string& place) {
  AlignedText made;
  made.reserve(text.text().size());
  size_t done = 0;
  pattern(text.text(), budget, [&](size_t begin, size_t end) {
    if (begin == end) return;
    budget.grow(end - begin, content.size(), place);
    made.append(text, done, begin);
    made.append(content, text.origin(end - 1, end));
    done = end;
  });
  made.append(text, done, text.text().size());
  return made;
}

// Prepends `content` to the text. Its origin is the first character of the text.
AlignedText prepended(const AlignedText& text, const std::string& content, StepBudget& budget,
                      const std::string& place) {
  if (text.empty()) return text;
  budget.grow(0, content.size(), place);
  AlignedText made;
  made.reserve(content.size() + text.text().size());
  made.append(content, text.origin(0, 1));
  made.append(text, 0, text.text().size());
  return made;
}

// ---- splits

// How a text is split, given its matches and the sections between them. `joins` returns whether a section belongs to
// the piece of the section before it.
struct Behavior {
  bool (*joins)(bool is_match_before, bool is_match);
  bool removes_matches = false;
};

constexpr Behavior isolated{[](bool, bool) { return false; }};
constexpr Behavior removed{[](bool, bool) { return false; }, true};
constexpr Behavior merged_with_previous{[](bool before, bool now) { return now && !before; }};
constexpr Behavior merged_with_next{[](bool before, bool now) { return before && !now; }};
constexpr Behavior contiguous{[](bool before, bool now) { return before == now; }};

Behavior behavior_of(const JsonPart& json) {
  const std::string name = json.text();
  if (name == "Isolated") return isolated;
  if (name == "Removed") return removed;
  if (name == "MergedWithPrevious") return merged_with_previous;
  if (name == "MergedWithNext") return merged_with_next;
  if (name == "Contiguous") return contiguous;
  refuse_type(json, name, {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
}

void split(const AlignedText& text, const Pattern& pattern, bool invert, const Behavior& behavior, StepBudget& budget,
           const EmitText& emit) {
  size_t begin = 0, end = 0;  // range of the current piece
  bool is_match = false;      // whether its last section is a match
  const auto end_piece = [&] {
    if (begin < end && !(behavior.removes_matches && is_match)) emit(text.part(begin, end));
    begin = end;
  };
  const auto add = [&](size_t section_end, bool section_is_match) {
    if (!behavior.joins(is_match, section_is_match)) end_piece();
    end = section_end, is_match = section_is_match;
  };
  pattern(text.text(), budget, [&](size_t match_begin, size_t match_end) {
    if (end < match_begin) add(match_begin, invert);
    add(match_end, !invert);
  });
  if (end < text.text().size()) add(text.text().size(), invert);
  end_piece();
}

// ---- words

PreTokenizer byte_level(const JsonPart& json, bool spells_bytes) {
  const bool adds_prefix_space = json.flag("add_prefix_space", true), splits = json.flag("use_regex", true);
  return [=, place = json.place(), pattern = words(gpt2_word_end)](AlignedText text, StepBudget& budget,
                                                                   const EmitText& emit) {
    if (adds_prefix_space && !text.text().starts_with(' ')) text = prepended(text, " ", budget, place);
    const auto spell = [&](AlignedText word) {
      budget.grow(word.text().size(), 2 * word.text().size(), place);
      emit(bytes_as_characters(std::exchange(word, {})));
    };
    const EmitText emit_word = spells_bytes ? EmitText(std::ref(spell)) : std::ref(emit);
    splits ? split(text, pattern, false, isolated, budget, emit_word) : emit_word(std::move(text));
  };
}

// Returns the replacement mark, which is one character as in `tokenizers`.
std::string mark_of(const JsonPart& json) {
  const std::string mark = json.text("replacement", "\u2581");
  if (mark.empty() || character_bytes(mark[0]) != mark.size())
    json.refuse(fmt::format("replacement: \"{}\" given, expected one character.", shortened(mark)));
  return mark;
}

std::string prepend_scheme_of(const JsonPart& json) {
  return json.text("prepend_scheme", json.flag("add_prefix_space", true) ? "always" : "never");
}

PreTokenizer metaspace(const JsonPart& json) {
  const std::string mark = mark_of(json), scheme = prepend_scheme_of(json);
  if (scheme != "always" && scheme != "never" && scheme != "first")
    json.refuse(fmt::format("prepend_scheme: \"{}\" given, expected always, never or first.", shortened(scheme)));
  const bool splits = json.flag("split", true);
  return [=, place = json.place(), space = literal(json, " "), marks = literal(json, mark)](
             AlignedText text, StepBudget& budget, const EmitText& emit) {
    text = replaced(text, space, mark, budget, place);
    const bool is_first = !text.empty() && text.origin(0, 1).begin == 0;
    if ((scheme == "always" || (scheme == "first" && is_first)) && !text.text().starts_with(mark))
      text = prepended(text, mark, budget, place);
    splits ? split(text, marks, false, merged_with_next, budget, emit) : emit(std::move(text));
  };
}

template <class Step, class Read>
std::vector<Step> steps_of(const JsonPart& json, const char* key, Read read) {
  std::vector<Step> steps;
  for (const JsonPart& item : json.at(key).items()) steps.push_back(read(item));
  return steps;
}

template <class Step>
Step in_turn(std::vector<Step> steps) {
  return [steps = std::move(steps)](auto value, StepBudget& budget) {
    for (const Step& step : steps) value = step(std::move(value), budget);
    return value;
  };
}

void split_each(std::span<const PreTokenizer> steps, AlignedText text, StepBudget& budget, const EmitText& emit) {
  if (steps.empty()) return emit(std::move(text));
  const auto next = [&](AlignedText piece) { split_each(steps.subspan(1), std::move(piece), budget, emit); };
  steps.front()(std::move(text), budget, std::ref(next));
}

Normalizer strip_white_space(const JsonPart& json) {
  const bool left = json.at("strip_left").flag(), right = json.at("strip_right").flag();
  return [=](const AlignedText& all, StepBudget&) {
    const std::string_view text = all.text();
    const size_t begin = left ? after_white_space(text, 0) : 0;
    return all.part(begin, right ? before_white_space(text, text.size(), begin) : text.size());
  };
}

// Returns a normalizer that applies `change`, and charges the budget for a longer text.
Normalizer changing(const JsonPart& json, std::function<AlignedText(const AlignedText&)> change) {
  return [change = std::move(change), place = json.place()](const AlignedText& text, StepBudget& budget) {
    AlignedText made = change(text);
    budget.grow(text.text().size(), made.text().size(), place);
    return made;
  };
}

Normalizer replace(const JsonPart& json, Pattern pattern, const std::string& content) {
  return [=, pattern = std::move(pattern), place = json.place()](const AlignedText& text, StepBudget& budget) {
    return replaced(text, pattern, content, budget, place);
  };
}

PreTokenizer split_in_turn(std::vector<PreTokenizer> steps) {
  return [steps = std::move(steps)](AlignedText text, StepBudget& budget, const EmitText& emit) {
    split_each(steps, std::move(text), budget, emit);
  };
}

Normalizer read_normalizer(const JsonPart& json) {
  if (json.is_null()) return [](AlignedText text, StepBudget&) { return text; };
  const std::string type = json.at("type").text();
  if (type == "Sequence") return in_turn(steps_of<Normalizer>(json, "normalizers", read_normalizer));
  if (type == "Prepend")
    return [content = json.at("prepend").text(), place = json.place()](const AlignedText& text, StepBudget& budget) {
      return prepended(text, content, budget, place);
    };
  if (type == "Replace") return replace(json, pattern_of(json.at("pattern")), json.at("content").text());
  if (type == "Strip") return strip_white_space(json);
  if (type == "StripAccents") return replace(json, pattern_of(is_combining_mark), "");
  if (type == "Lowercase") return changing(json, lower_case);
  if (type == "ByteLevel") return changing(json, bytes_as_characters);
  constexpr std::pair<const char*, NormalForm> forms[] = {
      {"NFC", NormalForm::c}, {"NFD", NormalForm::d}, {"NFKC", NormalForm::kc}, {"NFKD", NormalForm::kd}};
  for (const auto& [name, form] : forms)
    if (type == name) return changing(json, [form = form](const AlignedText& text) { return normalized(text, form); });
  refuse_type(json, type,
              {"Sequence", "Prepend", "Replace", "Strip", "StripAccents", "Lowercase", "ByteLevel", "NFC", "NFD",
               "NFKC", "NFKD"});
}

PreTokenizer split_by(Pattern pattern, bool invert, const Behavior& behavior) {
  return [=, pattern = std::move(pattern)](const AlignedText& text, StepBudget& budget, const EmitText& emit) {
    split(text, pattern, invert, behavior, budget, emit);
  };
}

// Returns whether Rust's char::is_numeric is true, which is of Unicode 17.
bool is_numeric(char32_t c) { return is_number(c) || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6); }

// Returns the last of the steps of a pre-tokenizer.
JsonPart last_step(const JsonPart& json) {
  if (json.is_null() || json.text("type", "") != "Sequence" || json.at("pretokenizers").length() == 0) return json;
  return last_step(json.at("pretokenizers").item(json.at("pretokenizers").length() - 1));
}

PreTokenizer read_pre_tokenizer(const JsonPart& json, const boost::json::value* unspelled) {
  if (json.is_null()) return [](AlignedText text, StepBudget&, const EmitText& emit) { emit(std::move(text)); };
  const std::string type = json.at("type").text();
  if (type == "Sequence")
    return split_in_turn(steps_of<PreTokenizer>(
        json, "pretokenizers", [=](const JsonPart& step) { return read_pre_tokenizer(step, unspelled); }));
  if (type == "ByteLevel") return byte_level(json, &json.value != unspelled);
  if (type == "Split")
    return split_by(pattern_of(json.at("pattern")), json.flag("invert", false), behavior_of(json.at("behavior")));
  if (type == "Metaspace") return metaspace(json);
  if (type == "Digits")
    return split_by(pattern_of(is_numeric), false, json.flag("individual_digits", false) ? isolated : contiguous);
  if (type == "Punctuation")
    return split_by(pattern_of(is_punctuation), false,
                    json.has("behavior") ? behavior_of(json.at("behavior")) : isolated);
  if (type == "CharDelimiterSplit")
    return split_by(literal(json.at("delimiter"), json.at("delimiter").text()), false, removed);
  const PreTokenizer at_white_space = split_by(pattern_of(is_white_space), false, removed);
  if (type == "WhitespaceSplit") return at_white_space;
  if (type == "Whitespace")  // and at each change between characters of words and others
    return split_in_turn({at_white_space, split_by(pattern_of(is_word_character), false, contiguous)});
  refuse_type(json, type,
              {"Sequence", "ByteLevel", "Split", "Metaspace", "Digits", "Punctuation", "CharDelimiterSplit",
               "Whitespace", "WhitespaceSplit"});
}

}  // namespace

Normalizer normalizer_of(const JsonPart& json) {
  check_sizes(json);
  return read_normalizer(json);
}

bool ends_in_byte_level(const JsonPart& json) {
  const JsonPart last = last_step(json);
  return !last.is_null() && last.text("type", "") == "ByteLevel";
}

PreTokenizer pre_tokenizer_of(const JsonPart& json, bool spells_bytes) {
  check_sizes(json);
  return read_pre_tokenizer(json, spells_bytes ? nullptr : &last_step(json).value);
}

// ---- decoders

namespace {

bool is_byte_token(const std::string& token, char& byte) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return false;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  byte = static_cast<char>(16 * high + low);
  return high >= 0 && low >= 0;
}

TokenTexts byte_level_decoded(const TokenTexts& tokens, StepBudget&) {
  std::string bytes;
  for (const std::string& token : tokens) {
    std::string mine;
    bool is_spelled = true;
    for (size_t i = 0; i < token.size() && is_spelled; i += character_bytes(token[i])) {
      const int byte = byte_of_character(character_at(token, i));
      is_spelled = byte >= 0;
      mine += static_cast<char>(byte);
    }
    bytes += is_spelled ? mine : token;  // special tokens are not spelled as characters
  }
  return {valid_utf8(bytes)};
}

TokenTexts byte_fallback_decoded(const TokenTexts& tokens, StepBudget&) {
  TokenTexts made;
  std::string bytes;
  const auto end_bytes = [&] {
    if (bytes.empty()) return;
    const bool is_valid = first_invalid_utf8(bytes) < 0;
    for (size_t i = 0; !is_valid && i < bytes.size(); ++i) made.push_back("\uFFFD");
    if (is_valid) made.push_back(bytes);
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    char byte = 0;
    if (is_byte_token(token, byte)) {
      bytes += byte;
      continue;
    }
    end_bytes();
    made.push_back(token);
  }
  end_bytes();
  return made;
}

std::string stripped(std::string_view token, const std::string& content, int64_t start, int64_t stop) {
  for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.remove_prefix(content.size());
  for (int64_t i = 0; i < stop && token.ends_with(content); ++i) token.remove_suffix(content.size());
  return std::string(token);
}

Decoder strip(const JsonPart& json) {
  const std::string content = json.at("content").text();
  if (content.empty()) json.at("content").refuse("an empty string given, expected what to remove.");
  constexpr int64_t max_stripped = 1 << 20;  // model files strip 1
  const int64_t start = json.at("start").integer(0, max_stripped), stop = json.at("stop").integer(0, max_stripped);
  return [=](TokenTexts tokens, StepBudget&) {
    for (std::string& token : tokens) token = stripped(token, content, start, stop);
    return tokens;
  };
}

Decoder read_decoder(const JsonPart& json) {
  if (json.is_null())
    return [](const TokenTexts& tokens, StepBudget&) { return TokenTexts{fmt::format("{}", fmt::join(tokens, " "))}; };
  const std::string type = json.at("type").text();
  if (type == "Sequence") return in_turn(steps_of<Decoder>(json, "decoders", read_decoder));
  if (type == "ByteLevel") return byte_level_decoded;
  if (type == "ByteFallback") return byte_fallback_decoded;
  if (type == "Fuse")
    return [](const TokenTexts& tokens, StepBudget&) { return TokenTexts{fmt::format("{}", fmt::join(tokens, ""))}; };
  if (type == "Replace")
    return [pattern = pattern_of(json.at("pattern")), content = json.at("content").text(), place = json.place()](
               TokenTexts tokens, StepBudget& budget) {
      for (std::string& token : tokens) token = replaced(AlignedText(token, 0), pattern, content, budget, place).text();
      return tokens;
    };
  if (type == "Strip") return strip(json);
  if (type == "Metaspace")
    return [marks = literal(json, mark_of(json)), strips = prepend_scheme_of(json) != "never", place = json.place()](
               TokenTexts tokens, StepBudget& budget) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replaced(AlignedText(tokens[i], 0), marks, i == 0 && strips ? "" : " ", budget, place).text();
      return tokens;
    };
  refuse_type(json, type, {"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace"});
}

}  // namespace

Decoder decoder_of(const JsonPart& json) {
  check_sizes(json);
  return read_decoder(json);
}

// ---- post-processors

namespace {

constexpr size_t max_template_ids = 1024;  // model files have at most a few

int32_t id_of(const JsonPart& json) { return static_cast<int32_t>(json.integer(0, INT32_MAX)); }

// Reads the tokens around a text of a TemplateProcessing.
Template template_processing(const JsonPart& json) {
  Template made;
  bool is_after = false;
  for (const JsonPart& item : json.at("single").items()) {
    if (item.has("Sequence")) {
      if (is_after) item.refuse("a second text given, expected one.");
      is_after = true;
      continue;
    }
    const JsonPart special = json.at("special_tokens").at(item.at("SpecialToken").at("id").text());
    for (const JsonPart& id : special.at("ids").items()) {
      (is_after ? made.after : made.before).push_back(id_of(id));
      if (made.before.size() + made.after.size() > max_template_ids)
        item.refuse(fmt::format("more than {} tokens around a text, expected fewer.", max_template_ids));
    }
  }
  return made;
}

Template read_template(const JsonPart& json) {
  Template made;
  if (json.is_null()) return made;
  const std::string type = json.at("type").text();
  if (type == "TemplateProcessing") return template_processing(json);
  if (type == "Sequence") {
    for (const JsonPart& item : json.at("processors").items()) {
      const Template part = read_template(item);
      made.before.insert(made.before.begin(), part.before.begin(), part.before.end());
      made.after.insert(made.after.end(), part.after.begin(), part.after.end());
      made.trims_offsets |= part.trims_offsets;
      made.adds_prefix_space |= part.adds_prefix_space;
    }
    return made;
  }
  const bool is_byte_level = type == "ByteLevel", is_roberta = type == "RobertaProcessing";
  if (!is_byte_level && !is_roberta && type != "BertProcessing")
    refuse_type(json, type, {"Sequence", "ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing"});
  if (!is_byte_level) made.before = {id_of(json.at("cls").item(1))}, made.after = {id_of(json.at("sep").item(1))};
  made.trims_offsets = type != "BertProcessing" && json.flag("trim_offsets", true);
  made.adds_prefix_space = json.flag("add_prefix_space", true);
  return made;
}

}  // namespace

Template template_of(const JsonPart& json) {
  check_sizes(json);
  return read_template(json);
}

}  // namespace tessera::data::detail
