// WordMemos: the tokens of words that came before, so that they are merged once.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/byte_pair_encoding.h"
#include "sharding/base/bounded_cache.h"

namespace tessera::data::detail {

// Any number of threads encode at once: each borrows a memo of its own, of which there are as many as threads ever
// encoded together. A memo holds up to 2 x 16,384 words of up to 64 bytes; longer ones are encoded each time.
class WordMemos {
 public:
  using Tokens = std::vector<BytePairEncoding::Token>;

 private:
  using BoundedCache = tessera::detail::BoundedCache<std::unordered_map<std::string, Tokens>, 16'384>;

 public:
  class Loan {
   public:
    explicit Loan(WordMemos& from);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    // model.encode(word), valid until the next call. A memo knows one model.
    const Tokens& encode(const BytePairEncoding& model, const std::string& word);

   private:
    WordMemos& from_;
    std::unique_ptr<BoundedCache> memo_;
    Tokens long_word_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BoundedCache>> free_;
};

}  // namespace tessera::data::detail
