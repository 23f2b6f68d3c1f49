// BytePairEncoding: the model of a BPE tokenizer, which merges characters to tokens by rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sharding/base/seeded_hash.h"

namespace tessera::data::detail {

// Ids of tokens by their spelling.
using TokenIds = std::unordered_map<std::string, int32_t, tessera::detail::SeededHash>;

// Options of a byte pair encoding (Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword
// units", 2016; byte fallback as in SentencePiece, Kudo and Richardson, 2018).
struct BytePairOptions {
  std::optional<std::string> unknown = {};  // the token of a character that the vocabulary lacks
  bool fuse_unknown = false;                // consecutive unknown characters become one token
  bool byte_fallback = false;               // an unknown character becomes the tokens <0x..> of its bytes
  bool ignore_merges = false;               // a word that is a token becomes that token without merges
  bool over_bytes = false;                  // words are bytes, which tokens spell as characters; no byte_fallback
};

// The merges of pairs of tokens, by the ids of the left and the right token.
class MergeTable {
 public:
  struct Merge {
    int32_t rank, id;
  };
  explicit MergeTable(size_t max_merges = 0);
  void set(int32_t left, int32_t right, Merge merge) { slots_[place(left, right)] = {left, right, merge}; }
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[place(left, right)];
    return slot.left < 0 ? nullptr : &slot.merge;
  }

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Merge merge = {};
  };
  size_t place(int32_t left, int32_t right) const;

  std::vector<Slot> slots_;  // at least twice as many as merges; a pair is in the first free slot from its hash on
  uint64_t factor_;
  int shift_;
};

class BytePairEncoding {
 public:
  struct Token {
    int32_t id;
    int32_t bytes;  // bytes of the word
  };

  BytePairEncoding() = default;
  // Makes the model; `merges` are in the order of their ranks. Error (invalid_file), which names `where`: a merge or
  // the unknown token is not in the vocabulary.
  BytePairEncoding(TokenIds vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                   const BytePairOptions& options, const std::string& where);

  std::vector<Token> encode(std::string_view word) const;
  // Returns the end of the section of a word that begins at byte `begin`. The tokens of a word are those of its
  // sections. SentencePiece's words are complete texts with a mark, U+2581, at each space. Sections end at these marks.
  size_t section_end(std::string_view word, size_t begin) const;
  const TokenIds& vocabulary() const { return vocabulary_; }
  bool is_over_bytes() const { return options_.over_bytes; }

 private:
  std::vector<Token> characters(std::string_view word) const;
  const int32_t* find(const std::string& token) const;
  const int32_t* find(std::string_view token) const { return find(std::string(token)); }
  void add_crossing(const std::string& left, const std::string& right);
  void merge(std::vector<Token>& tokens) const;
  void merge_few(std::span<Token> tokens) const;
  void merge_many(std::span<Token> tokens) const;

  TokenIds vocabulary_;
  MergeTable merges_;
  // Pairs of adjacent tokens of characters or bytes that can be joined by some merge.
  std::unordered_set<uint64_t, tessera::detail::SeededHash> crossed_;
  BytePairOptions options_;
  size_t longest_token_ = 0;         // bytes
  bool has_separate_marks_ = false;  // no merge joins a mark to what is before it, other than marks
  std::array<int32_t, 256> byte_ids_ = {};
  bool has_all_bytes_ = false;  // byte_ids_ are the tokens of all bytes
};

}  // namespace tessera::data::detail
