// RecordReader: reads the records of any stream from a mark on, behind one virtual call a record.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "data/streams/prefetch.h"
#include "data/streams/stream.h"

namespace tessera::data::detail {

// Call these in a catch handler. They throw the current exception again as an Error "[next] record 17 of epoch 0: its
// message"; `where` names the place.
[[noreturn]] void fail_next(const std::string& where);
[[noreturn]] void fail_at_record(int64_t epoch, int64_t index);
[[noreturn]] void fail_at_stream_record(const StreamMark& from);

template <class T>
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // The next record; std::nullopt at the end of an epoch, after which the next one begins. `stop`, if given, becomes
  // true when nobody waits for the record any more; then next() throws.
  virtual std::optional<T> next(const std::atomic<bool>* stop) = 0;
  virtual StreamMark mark() const = 0;  // where the next record lies
  // Goes to the beginning of the next epoch; of an endless stream, stays.
  virtual void skip_epoch() = 0;
};

// What a stream is, for all that reads it. Immutable.
template <class T>
class StreamPlan {
 public:
  virtual ~StreamPlan() = default;
  // `threads` make records ahead; of one or none nothing is made ahead. A mark without parts is a beginning.
  virtual std::unique_ptr<RecordReader<T>> open(const StreamMark& from, int threads) const = 0;
  virtual std::string describe() const = 0;
  virtual bool is_endless() const = 0;
  virtual std::string missing(const StreamMark& mark) const = 0;  // why it has no such place; empty: it has
  virtual double passes(const StreamMark& mark) const = 0;        // over the data
};

// "one endless epoch", "10 records".
std::string missing_place(int64_t size, const StreamMark& mark);
double passes_at(int64_t size, int64_t round, const StreamMark& mark);

// Makes the records of a dataset in other threads, in chunks; next() returns them in order from the mark on.
// `make(epoch, index)` returns a record as AnyItem.
class ChunkReader {
 public:
  ChunkReader(int64_t size, const StreamMark& from, std::function<AnyItem(int64_t epoch, int64_t index)> make,
              int threads);
  AnyItem next();

 private:
  struct Chunk;
  Prefetcher prefetcher_;
  std::shared_ptr<Chunk> chunk_;
  size_t at_ = 0;
};

template <class Node, class Stage>
class ChainReader : public RecordReader<typename Stage::value_type> {
 public:
  using T = typename Stage::value_type;
  using Fan = typename Node::value_type;

  ChainReader(Node node, const Stage& stage, const StreamMark& from, int threads)
      : node_(std::move(node)),
        threads_(threads),
        reader_(stage, node_.size(), node_.round(),
                [this](int64_t epoch, int64_t index) { return fetch(epoch, index); }) {
    go_to(from);
  }

  std::optional<T> next(const std::atomic<bool>* stop) override {
    try {
      return reader_.next(stop);
    } catch (...) {
      if (reader_.is_in_stage()) fail_at_stream_record(reader_.mark());
      throw;
    }
  }
  StreamMark mark() const override { return reader_.mark(); }
  void skip_epoch() override {
    if (node_.size() != endless) go_to({reader_.mark().epoch + 1});
  }

 private:
  void go_to(const StreamMark& mark) {
    ahead_.reset();
    if (threads_ > 1) ahead_ = std::make_unique<ChunkReader>(node_.size(), mark, maker(node_), threads_);
    reader_.seek(mark);
  }

  static auto maker(const Node& node) {
    return [node](int64_t epoch, int64_t index) -> AnyItem {
      try {
        return std::make_shared<Fan>(node.get(epoch, index));
      } catch (...) {
        fail_at_record(epoch, index);
      }
    };
  }

  Fan fetch(int64_t epoch, int64_t index) {
    if (ahead_) return std::move(*std::static_pointer_cast<Fan>(ahead_->next()));
    try {
      return node_.get(epoch, index);
    } catch (...) {
      fail_at_record(epoch, index);
    }
  }

  Node node_;
  int threads_;
  StreamReader<Node, Stage> reader_;
  std::unique_ptr<ChunkReader> ahead_;
};

template <class Node, class Stage>
class ChainPlan : public StreamPlan<typename Stage::value_type> {
 public:
  using T = typename Stage::value_type;
  ChainPlan(Node node, Stage stage) : node_(std::move(node)), stage_(std::move(stage)) {}

  std::unique_ptr<RecordReader<T>> open(const StreamMark& from, int threads) const override {
    return std::make_unique<ChainReader<Node, Stage>>(node_, stage_, from, threads);
  }
  std::string describe() const override { return node_.describe() + stage_.describe(); }
  bool is_endless() const override { return node_.size() == endless; }
  std::string missing(const StreamMark& mark) const override { return missing_place(node_.size(), mark); }
  double passes(const StreamMark& mark) const override { return passes_at(node_.size(), node_.round(), mark); }

 private:
  Node node_;
  Stage stage_;
};

}  // namespace tessera::data::detail
