// Splits packed rows into inputs, targets, segment ids, positions and weights.
#include "data/batches/packed_tokens.h"

#include <algorithm>

#include "data/batches/stack.h"
#include "sharding/base/fail.h"

namespace tessera::data {

namespace {

using PackedRows = std::vector<PackedRow<int32_t>>;

void check(const PackedRows& rows) {
  if (rows.empty()) fail(ErrorKind::shape_mismatch, "packed_tokens", "no rows, expected at least one");
  const size_t length = rows.front().tokens.size();
  if (length < 2)
    fail(ErrorKind::shape_mismatch, "packed_tokens", "rows of {} tokens, expected seq + 1, at least two", length);
  for (const auto& row : rows) {
    if (row.tokens.size() != length || row.segment_ids.size() != length || row.positions.size() != length)
      fail(ErrorKind::shape_mismatch, "packed_tokens", "rows of different lengths in one batch");
    const int32_t least = *std::min_element(row.tokens.begin(), row.tokens.end());
    if (least < 0) fail(ErrorKind::invalid_argument, "packed_tokens", "token {} is below 0", least);
  }
}

// Returns the number of inputs of a row: all its tokens but the last.
int64_t inputs_of(const PackedRows& rows) { return static_cast<int64_t>(rows.front().tokens.size()) - 1; }

// Returns an Array (rows, columns); write(row, to) writes one row and returns the end of its values.
template <class T, class Write>
Array filled(DType dtype, const PackedRows& rows, int64_t columns, Write write) {
  const auto out = detail::unwritten(dtype, {static_cast<int64_t>(rows.size()), columns});
  auto* to = static_cast<T*>(out.data);
  for (const auto& row : rows) to = write(row, to);
  return out.array;
}

// Returns the values of each row without the last one or, with `from` = 1, without the first.
Array without_one(const PackedRows& rows, std::vector<int32_t> PackedRow<int32_t>::*values, size_t from) {
  return filled<int32_t>(int32, rows, inputs_of(rows), [&](const PackedRow<int32_t>& row, int32_t* to) {
    return std::copy_n((row.*values).begin() + static_cast<ptrdiff_t>(from), row.tokens.size() - 1, to);
  });
}

Array starts_of(const PackedRows& rows, int64_t max_segments) {
  const int64_t inputs = inputs_of(rows);
  return filled<int32_t>(int32, rows, max_segments, [&](const PackedRow<int32_t>& row, int32_t* to) {
    int64_t segments = 0;
    for (int64_t t = 0; t < inputs; ++t) {
      if (t > 0 && row.segment_ids[t] == row.segment_ids[t - 1]) continue;
      if (++segments > max_segments)
        fail(ErrorKind::invalid_argument, "packed_tokens",
             "a row has more segments than max_segments = {}. Raise it, or give pack a lower max_sequences_per_bin.",
             max_segments);
      *to++ = static_cast<int32_t>(t);
    }
    return std::fill_n(to, max_segments - segments, static_cast<int32_t>(inputs));
  });
}

}  // namespace

PackedTokens PackedTokensBatcher::operator()(const PackedRows& rows) const {
  check(rows);
  constexpr int64_t most = 1 << 20;
  if (max_segments < 0 || max_segments > most)
    fail(ErrorKind::invalid_argument, "packed_tokens", "max_segments = {}, expected 0 to {}.", max_segments, most);
  PackedTokens batch;
  batch.inputs = without_one(rows, &PackedRow<int32_t>::tokens, 0);
  batch.targets = without_one(rows, &PackedRow<int32_t>::tokens, 1);
  batch.segment_ids = without_one(rows, &PackedRow<int32_t>::segment_ids, 0);
  batch.segment_starts = starts_of(rows, max_segments ? max_segments : inputs_of(rows));
  batch.positions = without_one(rows, &PackedRow<int32_t>::positions, 0);
  batch.weights = filled<float>(float32, rows, inputs_of(rows), [](const PackedRow<int32_t>& row, float* to) {
    for (size_t t = 0; t + 1 < row.tokens.size(); ++t)
      *to++ = row.segment_ids[t] != 0 && row.segment_ids[t] == row.segment_ids[t + 1] ? 1.0f : 0.0f;
    return to;
  });
  return batch;
}

template <std::same_as<WeightedToken> Token>
PackedTokens PackedTokensBatcher::operator()(const std::vector<PackedRow<Token>>& rows) const {
  PackedRows ids;
  for (const auto& row : rows) {
    ids.push_back({{}, row.segment_ids, row.positions});
    for (const WeightedToken& token : row.tokens) ids.back().tokens.push_back(token.id);
  }
  PackedTokens batch = (*this)(ids);
  const auto* row = rows.data();
  batch.weights = filled<float>(float32, ids, inputs_of(ids), [&](const PackedRow<int32_t>& segments, float* to) {
    for (size_t t = 0; t + 1 < row->tokens.size(); ++t)
      *to++ = segments.segment_ids[t] == segments.segment_ids[t + 1] ? row->tokens[t + 1].weight : 0.0f;
    ++row;
    return to;
  });
  return batch;
}
template PackedTokens PackedTokensBatcher::operator()(const std::vector<PackedRow<WeightedToken>>&) const;

}  // namespace tessera::data
