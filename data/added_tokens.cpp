// Found by their first byte.
#include "data/added_tokens.h"

#include <algorithm>

#include "data/unicode_text.h"

namespace tessera::data::detail {

void AddedTokens::add(std::string spelled, const AddedToken& token) {
  if (!spelled.empty()) by_first_[static_cast<unsigned char>(spelled[0])].push_back({std::move(spelled), &token});
}

void AddedTokens::sort() {
  for (auto& tokens : by_first_)
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const Spelled& a, const Spelled& b) { return a.text.size() > b.text.size(); });
}

namespace {

size_t character_before(std::string_view text, size_t place) {
  do --place;
  while (place > 0 && (text[place] & 0xC0) == 0x80);
  return place;
}
bool stands_alone(std::string_view text, const AddedTokens::Found& found) {
  const bool left = found.begin > 0 && is_word_character(character_at(text, character_before(text, found.begin)));
  const bool right = found.end < text.size() && is_word_character(character_at(text, found.end));
  return !left && !right;
}
size_t before_white_space(std::string_view text, size_t begin, size_t least) {
  while (begin > least && is_white_space(character_at(text, character_before(text, begin))))
    begin = character_before(text, begin);
  return begin;
}
size_t after_white_space(std::string_view text, size_t end) {
  while (end < text.size() && is_white_space(character_at(text, end))) end += character_bytes(text[end]);
  return end;
}

}  // namespace

const AddedTokens::Spelled* AddedTokens::at(std::string_view text, size_t i) const {
  for (const Spelled& spelled : by_first_[static_cast<unsigned char>(text[i])])
    if (text.substr(i).starts_with(spelled.text)) return &spelled;
  return nullptr;
}

std::vector<AddedTokens::Found> AddedTokens::find(std::string_view text) const {
  std::vector<Found> all;
  for (size_t i = 0, done = 0; i < text.size();) {
    const Spelled* spelled = at(text, i);
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
