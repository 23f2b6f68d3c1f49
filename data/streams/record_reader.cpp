// The errors of records and positions, and records made ahead in threads.
#include "data/streams/record_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sharding/base/fail.h"

namespace tessera::data::detail {

void fail_next(const std::string& where) {
  const Failure failure = current_failure();
  fail(failure.kind, "next", "{}: {}", where, failure.message);
}

void fail_at_record(int64_t epoch, int64_t index) {
  fail_next("record " + std::to_string(index) + " of epoch " + std::to_string(epoch));
}

void fail_at_stream_record(const StreamMark& from) {
  fail_next("what comes of record " + std::to_string(from.input) + " of epoch " + std::to_string(from.epoch) +
            " and those after it");
}

std::string missing_place(int64_t size, const StreamMark& mark) {
  const bool is_endless = size == endless;
  const bool is_place = mark.input <= (is_endless ? endless / 2 : size) && mark.epoch <= (is_endless ? 0 : endless / 2);
  if (is_place && mark.parts.empty() && std::min({mark.epoch, mark.input, mark.offset, mark.since}) >= 0) return "";
  return "the state continues at item " + std::to_string(mark.offset) + " of record " + std::to_string(mark.input) +
         " in epoch " + std::to_string(mark.epoch) + ", and the stream's dataset has " +
         (is_endless ? "one endless epoch" : std::to_string(size) + " records") +
         "; restore it with the dataset it was taken from";
}

double passes_at(int64_t size, int64_t round, const StreamMark& mark) {
  const double epochs = size == endless ? 0 : static_cast<double>(mark.epoch) * static_cast<double>(size);
  return (epochs + static_cast<double>(mark.input)) / static_cast<double>(round);
}

struct ChunkReader::Chunk {
  static constexpr int64_t records = 32;
  std::vector<Outcome> made;
};

namespace {

constexpr int chunks_per_thread = 2;
constexpr int max_threads = 1 << 20;

}  // namespace

ChunkReader::ChunkReader(int64_t size, const StreamMark& from,
                         std::function<AnyItem(int64_t epoch, int64_t index)> make, int threads)
    : prefetcher_(
          [size, from, make = std::move(make)](int64_t number) -> AnyItem {
            auto chunk = std::make_shared<Chunk>();
            for (int64_t i = 0; i < Chunk::records; ++i) {
              const int64_t at = number * Chunk::records + i;  // counted from the mark on
              const int64_t beyond = size == endless ? 0 : (at + from.input) / size;
              const int64_t index = size == endless ? from.input + at : (at + from.input) % size;
              chunk->made.push_back(attempt([&] { return make(from.epoch + beyond, index); }));
              if (std::holds_alternative<Failure>(chunk->made.back())) break;
            }
            return chunk;
          },
          chunks_per_thread* std::min(threads, max_threads), threads) {}

AnyItem ChunkReader::next() {
  if (!chunk_ || at_ == chunk_->made.size()) {
    chunk_ = std::static_pointer_cast<Chunk>(*prefetcher_.next());
    at_ = 0;
  }
  return item_or_throw(std::move(chunk_->made[at_++]));
}

}  // namespace tessera::data::detail
