// Packing: puts documents of any length side by side in rows of one length, first fit.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::data {

struct PackOptions {
  int64_t length = 0;  // tokens in a row, 1 to 2^31 - 1
  int64_t num_packing_bins =
      8;  // rows that are filled at the same time; more rows leave less padding and need more memory
  // Whether a document longer than a row is split into several rows; else it is an Error that names its length.
  bool split_long = false;
};

// A row of documents, filled up with zeros at its end. segment_ids: 1 for the tokens of the first document, 2 for the
// second and so on, 0 for filling; positions: of each token in its document, from 0. The attention mask is
// segment_ids[i] == segment_ids[j]; leave segment 0 out of the loss.
template <class Token>
struct PackedRow {
  std::vector<Token> tokens;
  std::vector<int32_t> segment_ids;
  std::vector<int32_t> positions;
  friend bool operator==(const PackedRow&, const PackedRow&) = default;
};

namespace detail {

void check_pack(const PackOptions& options);
void check_rebatch(int64_t count);
void check_document(int64_t tokens, const PackOptions& options);

// The document as it is, or cut into pieces of at most a row; an empty document gives none.
template <class Document>
std::vector<Document> pieces_of(Document document, const PackOptions& options) {
  const auto size = static_cast<int64_t>(document.size());
  check_document(size, options);
  std::vector<Document> pieces;
  if (size > 0 && size <= options.length) pieces.push_back(std::move(document));
  for (int64_t at = 0; size > options.length && at < size; at += options.length)
    pieces.emplace_back(document.begin() + at, document.begin() + std::min(size, at + options.length));
  return pieces;
}

}  // namespace detail

// The stage of Stream::pack: a document goes to the first open row that it fits into, or to a new row while there are
// fewer than num_packing_bins; else all rows are handed out and new ones opened, as in Grain's FirstFitPackIterDataset
// (with shuffle_bins=False).
template <class Token>
class FirstFit {
 public:
  using input = std::vector<Token>;
  using value_type = PackedRow<Token>;

  explicit FirstFit(const PackOptions& options) : options_(options) { detail::check_pack(options); }

  bool try_push(input& document) {
    if (!ready_.empty()) return false;
    for (auto& row : open_)
      if (fits_into(row, document)) return add(row, document);
    if (static_cast<int64_t>(open_.size()) < options_.num_packing_bins) return add(open_.emplace_back(), document);
    finish();
    return false;
  }

  std::optional<value_type> pop() {
    if (ready_.empty()) return std::nullopt;
    value_type row = std::move(ready_.front());
    ready_.pop_front();
    return row;
  }

  void finish() {
    for (auto& row : open_) {
      row.tokens.resize(static_cast<size_t>(options_.length));
      row.segment_ids.resize(static_cast<size_t>(options_.length));
      row.positions.resize(static_cast<size_t>(options_.length));
      ready_.push_back(std::move(row));
    }
    open_.clear();
  }

  bool empty() const { return open_.empty() && ready_.empty(); }

  std::string describe() const {
    return " | pack(" + std::to_string(options_.length) + ", " + std::to_string(options_.num_packing_bins) +
           (options_.split_long ? ", split_long)" : ")");
  }

 private:
  bool fits_into(const value_type& row, const input& document) const {
    return row.tokens.size() + document.size() <= static_cast<size_t>(options_.length);
  }

  static bool add(value_type& row, const input& document) {
    const int32_t segment = row.segment_ids.empty() ? 1 : row.segment_ids.back() + 1;
    row.tokens.insert(row.tokens.end(), document.begin(), document.end());
    row.segment_ids.resize(row.tokens.size(), segment);
    for (size_t i = 0; i < document.size(); ++i) row.positions.push_back(static_cast<int32_t>(i));
    return true;
  }

  PackOptions options_;
  std::vector<value_type> open_;
  std::deque<value_type> ready_;
};

}  // namespace tessera::data
