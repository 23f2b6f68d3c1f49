// What `tokenizers` calls Normalizer, PreTokenizer, Decoder and PostProcessor, type by type.
#include "data/tokenizer_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>

#include "data/byte_characters.h"
#include "data/text_source.h"

namespace tessera::data::detail {

namespace {

[[noreturn]] void refuse_type(const JsonPart& json, const std::string& type, const std::vector<std::string>& known) {
  json.refuse(fmt::format("the type \"{}\" is not supported, expected one of {}.", type, fmt::join(known, ", ")));
}

// ---- patterns

using Matches = std::vector<std::pair<size_t, size_t>>;
using Pattern = std::function<Matches(std::string_view)>;

// Where a text stands in another.
Pattern literal(const std::string& what) {
  return [what](std::string_view text) {
    Matches found;
    for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size()))
      found.emplace_back(at, at + what.size());
    return found;
  };
}

Pattern pattern_of(const JsonPart& json) {
  if (json.has("Regex")) {
    const JsonPart regex = json.at("Regex");
    return [compiled = std::make_shared<const Regex>(regex.text(), regex.place())](std::string_view text) {
      return compiled->matches(text);
    };
  }
  const std::string text = json.at("String").text();
  if (text.empty()) json.refuse("an empty string matches nothing.");
  return literal(text);
}

// ---- normalizers

AlignedText replaced(const AlignedText& text, const Pattern& pattern, const std::string& content) {
  AlignedText made;
  size_t done = 0;
  for (const auto& [begin, end] : pattern(text.text())) {
    if (begin == end) continue;
    made.append(text, done, begin);
    made.append(content, text.origin(end - 1, end));
    done = end;
  }
  made.append(text, done, text.text().size());
  return made;
}

// What is put before has the place of the first character.
AlignedText prepended(const AlignedText& text, const std::string& content) {
  if (text.empty()) return text;
  AlignedText made;
  made.append(content, text.origin(0, 1));
  made.append(text, 0, text.text().size());
  return made;
}

// ---- splits

struct Section {
  size_t begin, end;
  bool is_match;
};

std::vector<Section> sections_of(std::string_view text, const Matches& matches, bool invert) {
  std::vector<Section> sections;
  size_t done = 0;
  for (const auto& [begin, end] : matches) {
    if (done < begin) sections.push_back({done, begin, invert});
    sections.push_back({begin, end, !invert});
    done = end;
  }
  if (done < text.size()) sections.push_back({done, text.size(), invert});
  return sections;
}

using Behavior = std::vector<Section> (*)(const std::vector<Section>&);

std::vector<Section> isolated(const std::vector<Section>& all) { return all; }
std::vector<Section> removed(const std::vector<Section>& all) {
  std::vector<Section> kept;
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept), [](const Section& s) { return !s.is_match; });
  return kept;
}
std::vector<Section> merged_with_previous(const std::vector<Section>& all) {
  std::vector<Section> merged;
  bool after_match = false;
  for (const Section& s : all) {
    if (s.is_match && !after_match && !merged.empty())
      merged.back().end = s.end;
    else
      merged.push_back(s);
    after_match = s.is_match;
  }
  return merged;
}
std::vector<Section> merged_with_next(const std::vector<Section>& all) {
  std::vector<Section> merged;
  bool before_match = false;
  for (auto s = all.rbegin(); s != all.rend(); ++s) {
    if (s->is_match && !before_match && !merged.empty())
      merged.back().begin = s->begin;
    else
      merged.push_back(*s);
    before_match = s->is_match;
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}
std::vector<Section> contiguous(const std::vector<Section>& all) {
  std::vector<Section> merged;
  for (const Section& s : all)
    if (!merged.empty() && merged.back().is_match == s.is_match)
      merged.back().end = s.end;
    else
      merged.push_back(s);
  return merged;
}

Behavior behavior_of(const JsonPart& json) {
  const std::string name = json.text();
  if (name == "Isolated") return isolated;
  if (name == "Removed") return removed;
  if (name == "MergedWithPrevious") return merged_with_previous;
  if (name == "MergedWithNext") return merged_with_next;
  if (name == "Contiguous") return contiguous;
  refuse_type(json, name, {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
}

Pieces split(const Pieces& pieces, const Pattern& pattern, bool invert, Behavior behavior) {
  Pieces parts;
  for (const AlignedText& piece : pieces)
    for (const Section& s : behavior(sections_of(piece.text(), pattern(piece.text()), invert)))
      if (s.begin < s.end) parts.push_back(piece.part(s.begin, s.end));
  return parts;
}

// Runs of characters of a kind; or each by itself.
Pattern pattern_of(bool (*is_kind)(char32_t), bool each) {
  return [=](std::string_view text) {
    Matches found;
    for (size_t i = 0, n; i < text.size(); i += n) {
      n = character_bytes(text[i]);
      if (!is_kind(character_at(text, i))) continue;
      if (!each && !found.empty() && found.back().second == i)
        found.back().second = i + n;
      else
        found.emplace_back(i, i + n);
    }
    return found;
  };
}

// ---- words

constexpr const char* gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

PreTokenizer byte_level(bool adds_prefix_space, bool splits) {
  const auto words = splits ? std::make_shared<const Regex>(gpt2_words, "GPT-2's words") : nullptr;
  return [=](Pieces pieces) {
    for (AlignedText& piece : pieces)
      if (adds_prefix_space && !piece.text().starts_with(' ')) piece = prepended(piece, " ");
    if (words)
      pieces = split(
          pieces, [&](std::string_view text) { return words->matches(text); }, false, isolated);
    for (AlignedText& piece : pieces) piece = bytes_as_characters(piece);
    return pieces;
  };
}

PreTokenizer metaspace(const JsonPart& json) {
  const std::string mark = json.text("replacement", "\u2581");
  const std::string scheme = json.text("prepend_scheme", json.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "never" && scheme != "first")
    json.refuse(fmt::format("prepend_scheme: \"{}\" given, expected always, never or first.", scheme));
  const bool splits = json.flag("split", true);
  return [=, space = literal(" "), marks = literal(mark)](Pieces pieces) {
    for (AlignedText& piece : pieces) {
      piece = replaced(piece, space, mark);
      const bool is_first = !piece.empty() && piece.origin(0, 1).begin == 0;
      if ((scheme == "always" || (scheme == "first" && is_first)) && !piece.text().starts_with(mark))
        piece = prepended(piece, mark);
    }
    return splits ? split(pieces, marks, false, merged_with_next) : pieces;
  };
}

template <class Step, class Read>
std::vector<Step> steps_of(const JsonPart& json, const char* key, Read read) {
  std::vector<Step> steps;
  for (const JsonPart& item : json.at(key).items()) steps.push_back(read(item));
  return steps;
}

template <class Step>
auto in_turn(std::vector<Step> steps) {
  return [steps = std::move(steps)](auto value) {
    for (const Step& step : steps) value = step(std::move(value));
    return value;
  };
}

}  // namespace

Normalizer normalizer_of(const JsonPart& json) {
  if (json.is_null()) return [](AlignedText text) { return text; };
  const std::string type = json.at("type").text();
  if (type == "Sequence") return in_turn(steps_of<Normalizer>(json, "normalizers", normalizer_of));
  if (type == "Prepend")
    return [content = json.at("prepend").text()](const AlignedText& text) { return prepended(text, content); };
  if (type == "Replace")
    return [pattern = pattern_of(json.at("pattern")), content = json.at("content").text()](const AlignedText& text) {
      return replaced(text, pattern, content);
    };
  constexpr std::pair<const char*, NormalForm> forms[] = {
      {"NFC", NormalForm::c}, {"NFD", NormalForm::d}, {"NFKC", NormalForm::kc}, {"NFKD", NormalForm::kd}};
  for (const auto& [name, form] : forms)
    if (type == name) return [form = form](const AlignedText& text) { return normalized(text, form); };
  refuse_type(json, type, {"Sequence", "Prepend", "Replace", "NFC", "NFD", "NFKC", "NFKD"});
}

PreTokenizer pre_tokenizer_of(const JsonPart& json) {
  if (json.is_null()) return [](Pieces pieces) { return pieces; };
  const std::string type = json.at("type").text();
  if (type == "Sequence") return in_turn(steps_of<PreTokenizer>(json, "pretokenizers", pre_tokenizer_of));
  if (type == "ByteLevel") return byte_level(json.flag("add_prefix_space", true), json.flag("use_regex", true));
  if (type == "Split")
    return [pattern = pattern_of(json.at("pattern")), behavior = behavior_of(json.at("behavior")),
            invert = json.flag("invert", false)](const Pieces& pieces) {
      return split(pieces, pattern, invert, behavior);
    };
  if (type == "Metaspace") return metaspace(json);
  if (type == "Digits")
    return [pattern = pattern_of(is_number, json.flag("individual_digits", false)),
            behavior = json.flag("individual_digits", false) ? isolated : contiguous](const Pieces& pieces) {
      return split(pieces, pattern, false, behavior);
    };
  if (type == "WhitespaceSplit")
    return [pattern = pattern_of(is_white_space, false)](const Pieces& pieces) {
      return split(pieces, pattern, false, removed);
    };
  refuse_type(json, type, {"Sequence", "ByteLevel", "Split", "Metaspace", "Digits", "WhitespaceSplit"});
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

TokenTexts byte_level_decoded(const TokenTexts& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    std::string mine;
    bool is_spelled = true;
    for (size_t i = 0; i < token.size() && is_spelled; i += character_bytes(token[i])) {
      const int byte = byte_of_character(character_at(token, i));
      is_spelled = byte >= 0;
      mine += static_cast<char>(byte);
    }
    bytes += is_spelled ? mine : token;  // a special token is what it is
  }
  return {valid_utf8(bytes)};
}

TokenTexts byte_fallback_decoded(const TokenTexts& tokens) {
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

std::string stripped(std::string token, const std::string& content, int64_t start, int64_t stop) {
  for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
  for (int64_t i = 0; i < stop && token.ends_with(content); ++i) token.erase(token.size() - content.size());
  return token;
}

}  // namespace

Decoder decoder_of(const JsonPart& json) {
  if (json.is_null())
    return [](const TokenTexts& tokens) { return TokenTexts{fmt::format("{}", fmt::join(tokens, " "))}; };
  const std::string type = json.at("type").text();
  if (type == "Sequence") return in_turn(steps_of<Decoder>(json, "decoders", decoder_of));
  if (type == "ByteLevel") return byte_level_decoded;
  if (type == "ByteFallback") return byte_fallback_decoded;
  if (type == "Fuse")
    return [](const TokenTexts& tokens) { return TokenTexts{fmt::format("{}", fmt::join(tokens, ""))}; };
  if (type == "Replace")
    return [pattern = pattern_of(json.at("pattern")), content = json.at("content").text()](TokenTexts tokens) {
      for (std::string& token : tokens) token = replaced(AlignedText(token, 0), pattern, content).text();
      return tokens;
    };
  if (type == "Strip")
    return [content = json.at("content").text(), start = json.at("start").integer(),
            stop = json.at("stop").integer()](TokenTexts tokens) {
      for (std::string& token : tokens) token = stripped(std::move(token), content, start, stop);
      return tokens;
    };
  if (type == "Metaspace")
    return [marks = literal(json.text("replacement", "\u2581")),
            strips = json.text("prepend_scheme", json.flag("add_prefix_space", true) ? "always" : "never") !=
                     "never"](TokenTexts tokens) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replaced(AlignedText(tokens[i], 0), marks, i == 0 && strips ? "" : " ").text();
      return tokens;
    };
  refuse_type(json, type, {"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace"});
}

// ---- post-processors

Template template_of(const JsonPart& json) {
  Template made;
  if (json.is_null()) return made;
  const std::string type = json.at("type").text();
  if (type == "Sequence") {
    for (const JsonPart& item : json.at("processors").items()) {
      const Template part = template_of(item);
      made.before.insert(made.before.begin(), part.before.begin(), part.before.end());
      made.after.insert(made.after.end(), part.after.begin(), part.after.end());
      made.trims_offsets |= part.trims_offsets;
      made.adds_prefix_space |= part.adds_prefix_space;
    }
    return made;
  }
  if (type == "ByteLevel") {
    made.trims_offsets = json.flag("trim_offsets", true);
    made.adds_prefix_space = json.flag("add_prefix_space", true);
    return made;
  }
  if (type != "TemplateProcessing") refuse_type(json, type, {"Sequence", "ByteLevel", "TemplateProcessing"});
  bool is_after = false;
  for (const JsonPart& item : json.at("single").items()) {
    if (item.has("Sequence")) {
      is_after = true;
      continue;
    }
    const JsonPart special = json.at("special_tokens").at(item.at("SpecialToken").at("id").text());
    for (const JsonPart& id : special.at("ids").items())
      (is_after ? made.after : made.before).push_back(static_cast<int32_t>(id.integer()));
  }
  return made;
}

}  // namespace tessera::data::detail
