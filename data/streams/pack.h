// Packing: concatenates documents of any length into rows of one length, first fit.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/streams/stream_position.h"

namespace tessera::data {

struct PackOptions {
  int64_t length = 0;            // tokens in a row, 1 to 2^31 - 1
  int64_t num_packing_bins = 8;  // rows open at one time; more rows leave less padding and need more memory
  // Whether a document longer than a row is split into several rows. If false, it is an Error that reports its length.
  bool split_long = false;
  int64_t max_sequences_per_bin = 0;  // documents in a row at most; 0: any number
};

// A row of documents, padded with zeros at its end. segment_ids: 1 for the tokens of the first document, 2 for the
// second and so on, 0 for padding. positions: the position of each token in its document, from 0. The attention mask is
// segment_ids[i] == segment_ids[j]; exclude segment 0 from the loss.
template <class Token>
struct PackedRow {
  std::vector<Token> tokens;
  std::vector<int32_t> segment_ids;
  std::vector<int32_t> positions;
  friend bool operator==(const PackedRow&, const PackedRow&) = default;
};

namespace detail {

void check_pack(const PackOptions& options);
void check_document(int64_t tokens, const PackOptions& options);

// Returns the document, or its pieces of at most a row each; nothing for an empty document.
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

// The stage of Stream::pack: a document is appended to the first open row that has space, or to a new row while there
// are fewer than num_packing_bins. Otherwise all rows are returned and new ones opened, as in Grain's
// FirstFitPackIterDataset (with shuffle_bins=False).
template <class Token>
class FirstFit {
 public:
  using input = std::vector<Token>;
  using output = PackedRow<Token>;
  static constexpr auto positions = detail::StagePositions::since_input;

  explicit FirstFit(const PackOptions& options) : options_(options) { detail::check_pack(options); }

  bool push(input& document) {
    if (!ready_.empty()) return false;
    for (auto& row : open_)
      if (fits_into(row, document)) return add(row, document);
    if (static_cast<int64_t>(open_.size()) < options_.num_packing_bins) return add(open_.emplace_back(), document);
    finish();
    return false;
  }

  std::optional<output> pop() {
    if (ready_.empty()) return std::nullopt;
    output row = std::move(ready_.front());
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

  bool is_empty() const { return open_.empty() && ready_.empty(); }

  std::string describe() const {
    const int64_t most = options_.max_sequences_per_bin;
    return "pack(" + std::to_string(options_.length) + ", " + std::to_string(options_.num_packing_bins) +
           (options_.split_long ? ", split_long" : "") +
           (most ? ", max_sequences_per_bin " + std::to_string(most) + ")" : ")");
  }

 private:
  bool fits_into(const output& row, const input& document) const {
    const int64_t most = options_.max_sequences_per_bin;
    return row.tokens.size() + document.size() <= static_cast<size_t>(options_.length) &&
           (most == 0 || row.segment_ids.back() < most);
  }

  static bool add(output& row, const input& document) {
    const int32_t segment = row.segment_ids.empty() ? 1 : row.segment_ids.back() + 1;
    row.tokens.insert(row.tokens.end(), document.begin(), document.end());
    row.segment_ids.resize(row.tokens.size(), segment);
    for (size_t i = 0; i < document.size(); ++i) row.positions.push_back(static_cast<int32_t>(i));
    return true;
  }

  PackOptions options_;
  std::vector<output> open_;
  std::deque<output> ready_;
};

}  // namespace tessera::data
