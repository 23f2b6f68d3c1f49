// Merges pairs of adjacent tokens: the lowest rank first; of equal ranks, the leftmost.
#include "data/text/byte_pair_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <random>
#include <utility>

#include "data/text/unicode_text.h"
#include "sharding/base/fail.h"

namespace tessera::data::detail {
namespace {

std::string spelled(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes) characters += spelled_bytes()[static_cast<unsigned char>(byte)];
  return characters;
}

constexpr std::string_view mark = "\u2581";

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t max_merges)
    : slots_(std::bit_ceil(2 * max_merges + 2)),
      // Random, so that no file can have merges that all collide.
      factor_(uint64_t{std::random_device()()} << 32 | std::random_device()() | 1),
      shift_(64 - std::countr_zero(slots_.size())) {}

size_t MergeTable::place(int32_t left, int32_t right) const {
  size_t i = pair_of(left, right) * factor_ >> shift_;
  while (slots_[i].left >= 0 && (slots_[i].left != left || slots_[i].right != right)) i = (i + 1) & (slots_.size() - 1);
  return i;
}

BytePairEncoding::BytePairEncoding(TokenIds vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                                   const BytePairOptions& options, const std::string& where)
    : vocabulary_(std::move(vocabulary)), merges_(merges.size()), options_(options) {
  const auto id_of = [&](const std::string& token, const char* what) {
    const int32_t* id = find(token);
    if (!id)
      fail(ErrorKind::invalid_file, "Tokenizer", "{}: {} \"{}\" is not in the vocabulary.", where, what,
           shortened(token));
    return *id;
  };
  if (options_.unknown) id_of(*options_.unknown, "the unknown token");
  has_separate_marks_ =
      !options_.ignore_merges && find(mark) && !(options_.unknown && options_.unknown->ends_with(mark));
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    if (right.starts_with(mark) && !left.ends_with(mark)) has_separate_marks_ = false;
    const int32_t id = id_of(left + right, "the result of a merge,");
    merges_.set(id_of(left, "a part of a merge,"), id_of(right, "a part of a merge,"),
                {static_cast<int32_t>(rank), id});
    if (!left.empty() && !right.empty()) add_crossing(left, right);
  }
  for (const auto& [token, id] : vocabulary_) longest_token_ = std::max(longest_token_, token.size());
  has_all_bytes_ = options_.over_bytes;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const int32_t* id = find(spelled_bytes()[byte]);
    has_all_bytes_ = has_all_bytes_ && id;
    if (id) byte_ids_[byte] = *id;
  }
}

// Adds the pairs of characters, bytes ("<0x0A>") or unknown tokens that a merge can join: the end of `left` and the
// beginning of `right`.
void BytePairEncoding::add_crossing(const std::string& left, const std::string& right) {
  constexpr size_t byte_token = 6;
  const size_t last = character_before(left, left.size());
  const auto ids_of = [&](std::string_view character, std::string_view byte, bool has_unknown) {
    std::array<const int32_t*, 3> ids = {find(character)};
    if (byte.size() == byte_token && byte.starts_with("<0x")) ids[1] = find(byte);
    if (has_unknown) ids[2] = find(*options_.unknown);
    return ids;
  };
  const auto ends = ids_of(std::string_view(left).substr(last),
                           std::string_view(left).substr(left.size() - std::min(left.size(), byte_token)),
                           options_.unknown && left.ends_with(*options_.unknown));
  const auto begins =
      ids_of(std::string_view(right).substr(0, character_bytes(right[0])),
             std::string_view(right).substr(0, byte_token), options_.unknown && right.starts_with(*options_.unknown));
  for (const int32_t* end : ends)
    for (const int32_t* begin : begins)
      if (end && begin) crossed_.insert(pair_of(*end, *begin));
}

const int32_t* BytePairEncoding::find(const std::string& token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? nullptr : &found->second;
}

std::vector<BytePairEncoding::Token> BytePairEncoding::characters(std::string_view word) const {
  std::vector<Token> tokens;
  tokens.reserve(word.size());
  if (has_all_bytes_) {
    for (const char byte : word) tokens.push_back({byte_ids_[static_cast<unsigned char>(byte)], 1});
    return tokens;
  }
  bool after_unknown = false;
  for (size_t i = 0, n; i < word.size(); i += n) {
    n = options_.over_bytes ? 1 : character_bytes(word[i]);
    const std::string_view character =
        options_.over_bytes ? spelled_bytes()[static_cast<unsigned char>(word[i])] : word.substr(i, n);
    const bool is_fused = std::exchange(after_unknown, false) && options_.fuse_unknown;
    if (const int32_t* id = find(character)) {
      tokens.push_back({*id, static_cast<int32_t>(n)});
      continue;
    }
    std::vector<Token> bytes;
    if (options_.byte_fallback)
      for (const char c : character)
        if (const int32_t* id = find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c))))
          bytes.push_back({*id, 1});
    if (bytes.size() == n) {
      tokens.insert(tokens.end(), bytes.begin(), bytes.end());
    } else if (options_.unknown) {
      if (!is_fused) tokens.push_back({*find(*options_.unknown), 0});
      tokens.back().bytes += static_cast<int32_t>(n);
      after_unknown = true;
    } else {
      fail(ErrorKind::invalid_argument, "Tokenizer.encode",
           "\"{}\" is not in the vocabulary, which has no unknown token.", character);
    }
  }
  return tokens;
}

std::vector<BytePairEncoding::Token> BytePairEncoding::encode(std::string_view word) const {
  if (options_.ignore_merges && word.size() <= longest_token_)
    if (const int32_t* id = find(options_.over_bytes ? spelled(word) : std::string(word)))
      return {{*id, static_cast<int32_t>(word.size())}};
  std::vector<Token> tokens = characters(word);
  merge(tokens);
  return tokens;
}

namespace {

constexpr size_t few_tokens = 64;  // merge_few takes quadratic time; measured: at 64 tokens as fast as merge_many

}  // namespace

size_t BytePairEncoding::section_end(std::string_view word, size_t begin) const {
  if (!has_separate_marks_) return word.size();
  while (word.substr(begin).starts_with(mark)) begin += mark.size();
  return std::min(word.find(mark, begin), word.size());
}

// Merges the tokens of a word. Without a pre-tokenizer a word is a complete text, so a long word is split into sections
// at places that no merge crosses. This keeps the queue of merge_many short.
void BytePairEncoding::merge(std::vector<Token>& tokens) const {
  constexpr size_t least_of_section = 256;  // most words are shorter and are not split
  size_t kept = 0;
  for (size_t begin = 0, end; begin < tokens.size(); begin = end) {
    end = std::min(begin + least_of_section, tokens.size());
    while (end < tokens.size() && crossed_.contains(pair_of(tokens[end - 1].id, tokens[end].id))) ++end;
    const auto section = std::span(tokens).subspan(begin, end - begin);
    section.size() <= few_tokens ? merge_few(section) : merge_many(section);
    for (const Token& token : section)
      if (token.bytes > 0) tokens[kept++] = token;
  }
  tokens.resize(kept);
}

// Searches all pairs for the best merge each time.
void BytePairEncoding::merge_few(std::span<Token> tokens) const {
  using Merge = MergeTable::Merge;
  std::array<Merge, few_tokens> next;  // next[i] merges the tokens i and i + 1
  size_t n = tokens.size();
  const auto look = [&](size_t i) {
    const Merge* merge = i + 1 < n ? merges_.find(tokens[i].id, tokens[i + 1].id) : nullptr;
    next[i] = merge ? *merge : Merge{INT32_MAX, -1};
  };
  for (size_t i = 0; i < n; ++i) look(i);
  for (;;) {
    const auto best = std::min_element(next.begin(), next.begin() + static_cast<ptrdiff_t>(n),
                                       [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->id < 0) break;
    const auto i = static_cast<size_t>(best - next.begin());
    tokens[i] = {best->id, tokens[i].bytes + tokens[i + 1].bytes};
    std::shift_left(tokens.begin() + static_cast<ptrdiff_t>(i) + 1, tokens.begin() + static_cast<ptrdiff_t>(n), 1);
    std::shift_left(best + 1, next.begin() + static_cast<ptrdiff_t>(n), 1);
    --n;
    look(i);
    if (i > 0) look(i - 1);
  }
  for (Token& token : tokens.subspan(n)) token.bytes = 0;
}

void BytePairEncoding::merge_many(std::span<Token> tokens) const {
  struct Node {
    int32_t before, after;
  };
  struct Candidate {
    int32_t rank, place, id;
    bool operator<(const Candidate& o) const { return std::pair(rank, place) > std::pair(o.rank, o.place); }
  };
  const auto n = static_cast<int32_t>(tokens.size());
  std::vector<Node> nodes(tokens.size());
  for (int32_t i = 0; i < n; ++i) nodes[i] = {i - 1, i + 1 < n ? i + 1 : -1};
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int32_t left) {
    if (left < 0 || nodes[left].after < 0) return;
    const int32_t a = tokens[left].id, b = tokens[nodes[left].after].id;
    if (const auto* found = merges_.find(a, b)) candidates.push({found->rank, left, found->id});
  };
  for (int32_t i = 0; i + 1 < n; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const int32_t left = best.place, right = tokens[left].bytes ? nodes[left].after : -1;
    if (right < 0) continue;
    const auto* found = merges_.find(tokens[left].id, tokens[right].id);
    if (!found || found->id != best.id) continue;
    tokens[left].id = best.id;
    tokens[left].bytes += std::exchange(tokens[right].bytes, 0);
    nodes[left].after = nodes[right].after;
    if (nodes[left].after >= 0) nodes[nodes[left].after].before = left;
    consider(nodes[left].before);
    consider(left);
  }
}

}  // namespace tessera::data::detail
