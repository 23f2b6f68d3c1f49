// WordCache: the tokens of recent words, so that each word is merged once.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/byte_pair_encoding.h"
#include "sharding/base/bounded_cache.h"

namespace tessera::data::detail {

// Any number of threads encode at once: each borrows its own cache; there are as many caches as threads ever
// encoded at one time. A cache holds up to 2 x 16,384 words of up to 64 bytes; longer ones are encoded each time.
class WordCache {
 public:
  using Tokens = std::vector<BytePairEncoding::Token>;

 private:
  using BoundedCache = tessera::detail::BoundedCache<std::unordered_map<std::string, Tokens>, 16'384>;

 public:
  class Loan {
   public:
    explicit Loan(WordCache& from);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    // model.encode(word), valid until the next call. A cache belongs to one model.
    const Tokens& encode(const BytePairEncoding& model, const std::string& word);

   private:
    WordCache& from_;
    std::unique_ptr<BoundedCache> cache_;
    Tokens long_word_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BoundedCache>> free_;
};

}  // namespace tessera::data::detail
