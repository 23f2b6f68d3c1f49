// AddedTokens: finds tokens such as "<|endoftext|>" in a text before any merges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::data::detail {

struct AddedToken {
  int32_t id;
  std::string content;
  bool single_word;                // only matches if no letter or digit is next to it
  bool strips_left, strips_right;  // also takes the white space at that side
  bool normalized;                 // searched in the normalized text, in its normalized form
  bool special;

  bool operator==(const AddedToken&) const = default;
};

// The added tokens that are searched in one text: the given text or the normalized one.
class AddedTokens {
 public:
  // A token found at [begin, end) of a text.
  struct Found {
    const AddedToken* token;
    size_t begin, end;
  };

  // Adds a token, which must outlive this object.
  void add(std::string spelled, const AddedToken& token);
  // Call it once, after the last add(). Error (invalid_file), which names `file`: a token has more than 256 other
  // tokens as prefixes.
  void sort(const std::string& file);
  // Returns the tokens from left to right; at each position, the longest token that begins there.
  std::vector<Found> find(std::string_view text) const;

 private:
  struct Spelled {
    std::string text;
    const AddedToken* token;
    // Index of the longest other token that is a prefix of this one; -1 if there is none.
    int32_t beginning = -1;
    int prefixes = 0;  // other tokens that are prefixes of this one
  };
  const Spelled* at(std::string_view text) const;

  std::vector<Spelled> spelled_;  // sorted by bytes
  // For each byte, the range in spelled_ of the tokens that begin with it.
  std::array<std::pair<int32_t, int32_t>, 256> by_first_ = {};
};

}  // namespace tessera::data::detail
