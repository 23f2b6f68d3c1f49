// Memos change hands under a lock, once for each text.
#include "data/word_memo.h"

#include <utility>

namespace tessera::data::detail {

namespace {

constexpr size_t longest_kept = 64;

}  // namespace

WordMemos::Loan::Loan(WordMemos& from) : from_(from) {
  const std::lock_guard lock(from_.mutex_);
  if (from_.free_.empty()) return;
  memo_ = std::move(from_.free_.back());
  from_.free_.pop_back();
}

WordMemos::Loan::~Loan() {
  if (!memo_) return;
  const std::lock_guard lock(from_.mutex_);
  from_.free_.push_back(std::move(memo_));
}

const WordMemos::Tokens& WordMemos::Loan::encode(const BytePairEncoding& model, const std::string& word) {
  if (word.size() > longest_kept) return long_word_ = model.encode(word);
  if (!memo_) memo_ = std::make_unique<BoundedCache>();
  return memo_->get(word, [&] { return model.encode(word); }).second;
}

}  // namespace tessera::data::detail
