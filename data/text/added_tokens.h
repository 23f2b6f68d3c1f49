// AddedTokens: the tokens that are found in a text before anything is merged, as "<|endoftext|>".
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
  bool single_word;                // only where no letter or digit is beside it
  bool strips_left, strips_right;  // with the white space there
  bool normalized;                 // looked for in the normalized text, as the normalizer spells it
  bool special;

  bool operator==(const AddedToken&) const = default;
};

// Those that are looked for in one text: the given one, or the normalized one.
class AddedTokens {
 public:
  // A token found at [begin, end) of a text.
  struct Found {
    const AddedToken* token;
    size_t begin, end;
  };

  // `token` outlives this.
  void add(std::string spelled, const AddedToken& token);
  // All are added.
  void sort();
  // From left to right; of several that begin at one place the longest.
  std::vector<Found> find(std::string_view text) const;

 private:
  struct Spelled {
    std::string text;
    const AddedToken* token;
    // The longest other token that is a prefix of this one; -1 without one.
    int32_t beginning = -1;
  };
  const Spelled* at(std::string_view text) const;

  std::vector<Spelled> spelled_;  // in the order of their bytes
  // The range in spelled_ of the tokens that begin with a byte.
  std::array<std::pair<int32_t, int32_t>, 256> by_first_ = {};
};

}  // namespace tessera::data::detail
