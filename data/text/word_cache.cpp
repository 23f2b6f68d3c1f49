// Threads take and return caches under a lock, once for each text.
#include "data/text/word_cache.h"

#include <utility>

namespace tessera::data::detail {

namespace {

constexpr size_t longest_kept = 64;

}  // namespace

WordCache::Loan::Loan(WordCache& from) : from_(from) {
  const std::lock_guard lock(from_.mutex_);
  if (from_.free_.empty()) return;
  cache_ = std::move(from_.free_.back());
  from_.free_.pop_back();
}

WordCache::Loan::~Loan() {
  if (!cache_) return;
  const std::lock_guard lock(from_.mutex_);
  from_.free_.push_back(std::move(cache_));
}

const WordCache::Tokens& WordCache::Loan::encode(const BytePairEncoding& model, const std::string& word) {
  if (word.size() > longest_kept) return long_word_ = model.encode(word);
  if (!cache_) cache_ = std::make_unique<BoundedCache>();
  return cache_->get(word, [&] { return model.encode(word); }).second;
}

}  // namespace tessera::data::detail
