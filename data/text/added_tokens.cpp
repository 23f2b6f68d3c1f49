// Finds added tokens with a sorted list in which each token refers to its longest prefix.
#include "data/text/added_tokens.h"

#include <algorithm>

#include "data/text/unicode_text.h"
#include "sharding/base/fail.h"

namespace tessera::data::detail {

// They are visited at each byte of a text. Tokenizers of models have at most 30, for runs of spaces.
constexpr int max_prefixes = 256;

void AddedTokens::add(std::string spelled, const AddedToken& token) {
  if (!spelled.empty()) spelled_.push_back({std::move(spelled), &token});
}

// Sorts the tokens by spelling. If several tokens have one spelling, the token added first is kept.
void AddedTokens::sort(const std::string& file) {
  std::stable_sort(spelled_.begin(), spelled_.end(),
                   [](const Spelled& a, const Spelled& b) { return a.text < b.text; });
  const auto repeated = [](const Spelled& a, const Spelled& b) { return a.text == b.text; };
  spelled_.erase(std::unique(spelled_.begin(), spelled_.end(), repeated), spelled_.end());
  for (int32_t i = 0; i < static_cast<int32_t>(spelled_.size()); ++i) {
    Spelled& spelled = spelled_[static_cast<size_t>(i)];
    auto& [begin, end] = by_first_[static_cast<unsigned char>(spelled.text[0])];
    if (end == 0) begin = i;
    end = i + 1;
    spelled.beginning = i - 1;
    while (spelled.beginning >= 0 && !spelled.text.starts_with(spelled_[static_cast<size_t>(spelled.beginning)].text))
      spelled.beginning = spelled_[static_cast<size_t>(spelled.beginning)].beginning;
    if (spelled.beginning >= 0) spelled.prefixes = spelled_[static_cast<size_t>(spelled.beginning)].prefixes + 1;
    if (spelled.prefixes > max_prefixes)
      fail(ErrorKind::invalid_file, "Tokenizer",
           "{}: more than {} added tokens are prefixes of one token, expected fewer. Remove some.", file, max_prefixes);
  }
}

namespace {

bool stands_alone(std::string_view text, const AddedTokens::Found& found) {
  const bool left = found.begin > 0 && is_word_character(character_at(text, character_before(text, found.begin)));
  const bool right = found.end < text.size() && is_word_character(character_at(text, found.end));
  return !left && !right;
}
}  // namespace

// Returns the longest token that is a prefix of the text. It is either the last token that sorts before the text or a
// prefix of that token.
const AddedTokens::Spelled* AddedTokens::at(std::string_view text) const {
  const auto [begin, end] = by_first_[static_cast<unsigned char>(text[0])];
  if (begin == end) return nullptr;
  const auto behind = std::upper_bound(spelled_.begin() + begin, spelled_.begin() + end, text,
                                       [](std::string_view t, const Spelled& spelled) { return t < spelled.text; });
  if (behind == spelled_.begin() + begin) return nullptr;
  const Spelled* last = &*std::prev(behind);
  const auto common = static_cast<size_t>(
      std::mismatch(last->text.begin(), last->text.end(), text.begin(), text.end()).first - last->text.begin());
  while (last->text.size() > common) {
    if (last->beginning < 0) return nullptr;
    last = &spelled_[static_cast<size_t>(last->beginning)];
  }
  return last;
}

std::vector<AddedTokens::Found> AddedTokens::find(std::string_view text) const {
  std::vector<Found> all;
  if (spelled_.empty()) return all;
  for (size_t i = 0, done = 0; i < text.size();) {
    const bool begins_none = by_first_[static_cast<unsigned char>(text[i])].second == 0;
    const Spelled* spelled = begins_none ? nullptr : at(text.substr(i));
    if (!spelled) {
      ++i;
      continue;
    }
    const AddedToken* token = spelled->token;
    Found found{token, i, i + spelled->text.size()};
    i = found.end;
    if (token->single_word && !stands_alone(text, found)) continue;
    if (token->strips_left) found.begin = before_white_space(text, found.begin, done);
    if (token->strips_right) found.end = i = after_white_space(text, found.end);
    done = found.end;
    all.push_back(found);
  }
  return all;
}

}  // namespace tessera::data::detail
