// Transforms of streams: stages, shuffled windows, limits, mixes, and divided streams.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/combine.h"
#include "data/datasets/shuffle.h"
#include "data/streams/stream_plan.h"

namespace tessera::data::detail {

void check_rebatch(int64_t count);
void check_stream_shuffle(int64_t window);
void check_limit(int64_t count);
void check_divided(int64_t parts, bool is_endless);
void check_part(bool is_endless);

// Returns why a position with parts is not a position of a stream with this number of inputs; empty if it is.
std::string missing_parts(const StreamPosition& position, size_t inputs);
inline StreamPosition part_of(const StreamPosition& position, size_t i) {
  return position.parts.empty() ? StreamPosition{} : position.parts[i];
}

// Base of a transform: a copyable struct of options that makes records Out from input streams of records In. A
// transform defines
//   Reader             a StreamReader<Out>, constructed from (transform, inputs, from, threads)
//   describe(inputs)   the description of the stream, from the descriptions of its inputs
template <class In, class Out = In>
struct Transform {
  using input = In;
  using output = Out;
  static constexpr bool ends = false;  // whether epochs end although the inputs are endless
  // Whether the position has the positions of the inputs in its parts. If not, it is the position of the only input.
  static bool has_parts(const StreamPosition&) { return true; }
};

template <class T>
class TransformPlan : public StreamPlan<typename T::output> {
 public:
  using Inputs = StreamPlans<typename T::input>;
  TransformPlan(T transform, Inputs inputs) : transform_(std::move(transform)), inputs_(std::move(inputs)) {}

  std::unique_ptr<StreamReader<typename T::output>> open(const StreamPosition& from, int threads) const override {
    return std::make_unique<typename T::Reader>(transform_, inputs_, from, threads);
  }
  std::string describe() const override {
    std::vector<std::string> inputs;
    for (const auto& input : inputs_) inputs.push_back(input->describe());
    return transform_.describe(inputs);
  }
  bool is_endless() const override {
    return !T::ends && std::ranges::all_of(inputs_, [](const auto& input) { return input->is_endless(); });
  }
  std::string missing(const StreamPosition& position) const override {
    if (!T::has_parts(position)) return inputs_[0]->missing(position);
    std::string missing = missing_parts(position, inputs_.size());
    for (size_t i = 0; missing.empty() && i < position.parts.size(); ++i)
      missing = inputs_[i]->missing(position.parts[i]);
    return missing;
  }
  double passes(const StreamPosition& position) const override {
    return inputs_[0]->passes(T::has_parts(position) ? part_of(position, 0) : position);
  }

 private:
  T transform_;
  Inputs inputs_;
};

// ---- stages

// Reads a stream through a stage, which takes records one after another and returns others. push(record) returns false
// and does not take the record while records wait for pop(). finish() completes the records that are left at the end of
// an epoch. is_empty() returns whether the stage holds nothing. `positions` selects the kind of positions. A numbered
// stage also has begin(epoch, number).
template <class Stage>
class StageReader : public StreamReader<typename Stage::output> {
 public:
  using Input = typename Stage::input;
  using enum StagePositions;

  template <class Staged>
  StageReader(const Staged& transform, const StreamPlans<Input>& inputs, const StreamPosition& from, int threads)
      : stage_(transform.stage),
        is_endless_(inputs[0]->is_endless()),
        reader_(inputs[0]->open(begin_of(from), threads)),
        number_(from.input) {
    for (int64_t i = 0; Stage::positions != of_input && i < from.since; ++i)
      if (since_ != i || !next(nullptr)) fail_misplaced(from);
  }

  std::optional<typename Stage::output> next(const std::atomic<bool>* stop) override {
    for (int64_t empty = 0;;) {
      if (auto record = in_stage([&] { return stage_.pop(); })) {
        ++since_;
        if (stage_.is_empty() && !is_last_) ++number_, since_ = 0;
        return record;
      }
      if (is_last_) {
        begin_epoch();
        return std::nullopt;
      }
      if (!waiting_) {
        if (stage_.is_empty() || Stage::positions == since_input) before_ = reader_->position();
        waiting_ = reader_->next(stop);
        is_last_ = !waiting_;
      }
      if (stage_.is_empty()) begin_stage();
      if (is_last_)
        stage_.finish();
      else if (in_stage([&] { return stage_.push(*waiting_); }))
        waiting_.reset();
      if (stage_.is_empty() && is_endless_ && ++empty == StreamSource::max_empty_unknown)
        fail_empty(empty, begin_.epoch);
    }
  }

  StreamPosition position() const override {
    const bool is_begun = !stage_.is_empty() || is_last_;
    const StreamPosition begin = is_begun ? begin_ : waiting_ ? before_ : reader_->position();
    if (Stage::positions == of_input) return begin;
    if (Stage::positions == numbered) return {begin.epoch, number_, 0, since_, {begin}};
    if (begin.parts.empty() && begin.since == 0) return {begin.epoch, begin.input, begin.offset, since_};
    return {begin.epoch, 0, 0, since_, {begin}};
  }

  void skip_epoch() override {
    if (is_endless_) return;
    if (!is_last_) reader_->skip_epoch();
    waiting_.reset();
    stage_.finish();
    while (stage_.pop()) continue;
    begin_epoch();
  }

 private:
  static StreamPosition begin_of(const StreamPosition& position) {
    if (Stage::positions == of_input) return position;
    if (Stage::positions == numbered || !position.parts.empty()) return part_of(position, 0);
    return {position.epoch, position.input, position.offset};
  }

  void begin_stage() {
    begin_ = before_;
    if constexpr (Stage::positions == numbered) stage_.begin(begin_.epoch, number_);
  }
  void begin_epoch() {
    is_last_ = false;
    number_ = since_ = 0;
  }

  template <class F>
  auto in_stage(const F& f) {
    try {
      return f();
    } catch (...) {
      waiting_.reset();
      fail_at_stream_record(begin_);
    }
  }

  Stage stage_;
  bool is_endless_;
  std::unique_ptr<StreamReader<Input>> reader_;
  std::optional<Input> waiting_;   // a record that the stage has not taken yet
  bool is_last_ = false;           // the input's epoch has ended; the stage's epoch ends with the records that it holds
  StreamPosition before_, begin_;  // positions of the last record read, and of the first record in the stage
  int64_t number_;                 // how often the stage was emptied in this epoch
  int64_t since_ = 0;              // records returned since begin_
};

template <class Stage>
struct Staged : Transform<typename Stage::input, typename Stage::output> {
  using Reader = StageReader<Stage>;
  Stage stage;
  static bool has_parts(const StreamPosition& position) {
    if (Stage::positions == StagePositions::since_input) return !position.parts.empty();
    return Stage::positions == StagePositions::numbered;
  }
  std::string describe(const std::vector<std::string>& inputs) const { return after(inputs[0], stage.describe()); }
};

// map(), filter() and flat_map() after another transform: add(record, outputs) appends the outputs of a record.
template <class In, class Out, bool is_single, class Add>
struct RecordStage {
  using input = In;
  using output = Out;
  static constexpr auto positions = is_single ? StagePositions::of_input : StagePositions::since_input;
  const char* name;
  Add add;
  std::vector<Out> outputs = {};
  size_t returned = 0;

  bool push(In& record) {
    outputs.clear();
    returned = 0;
    add(std::move(record), outputs);
    return true;
  }
  std::optional<Out> pop() {
    if (is_empty()) return std::nullopt;
    return std::move(outputs[returned++]);
  }
  void finish() {}
  bool is_empty() const { return returned == outputs.size(); }
  std::string describe() const { return name; }
};

template <class T>
struct RebatchStage {
  using input = T;
  using output = std::vector<T>;
  static constexpr auto positions = StagePositions::of_input;
  int64_t count;
  std::vector<T> records = {};

  bool is_full() const { return static_cast<int64_t>(records.size()) == count; }
  bool push(T& record) {
    records.push_back(std::move(record));
    return true;
  }
  std::optional<output> pop() {
    if (!is_full()) return std::nullopt;
    return std::exchange(records, {});
  }
  void finish() { records.clear(); }
  bool is_empty() const { return records.empty(); }
  std::string describe() const { return "rebatch(" + std::to_string(count) + ")"; }
};

// Shuffles windows of records.
template <class T>
struct ShuffleStage {
  using input = T;
  using output = T;
  static constexpr auto positions = StagePositions::numbered;
  int64_t window;
  uint64_t seed;
  uint64_t window_seed = 0;
  std::vector<T> records = {};
  int64_t size = 0;  // records in the window; 0 while it is filled
  int64_t returned = 0;

  void begin(int64_t epoch, int64_t number) { window_seed = epoch_seed(epoch_seed(seed, epoch), number); }
  bool push(T& record) {
    records.push_back(std::move(record));
    if (static_cast<int64_t>(records.size()) == window) finish();
    return true;
  }
  std::optional<T> pop() {
    if (size == 0) return std::nullopt;
    T record = std::move(records[static_cast<size_t>(Permutation(size, window_seed)(returned++))]);
    if (returned == size) {
      records.clear();
      size = returned = 0;
    }
    return record;
  }
  void finish() { size = static_cast<int64_t>(records.size()); }
  bool is_empty() const { return records.empty(); }
  std::string describe() const { return "shuffle(" + std::to_string(window) + ", " + std::to_string(seed) + ")"; }
};

// ---- limit

template <class T>
struct Limit : Transform<T> {
  static constexpr bool ends = true;
  int64_t count;

  std::string describe(const std::vector<std::string>& inputs) const {
    return after(inputs[0], "limit(" + std::to_string(count) + ")");
  }

  struct Reader : StreamReader<T> {
    std::unique_ptr<StreamReader<T>> reader;
    int64_t count, epoch, returned;
    Reader(const Limit& limit, const StreamPlans<T>& inputs, const StreamPosition& from, int threads)
        : reader(inputs[0]->open(part_of(from, 0), threads)),
          count(limit.count),
          epoch(from.epoch),
          returned(from.input) {}
    std::optional<T> next(const std::atomic<bool>* stop) override {
      std::optional<T> record;
      if (returned < count)
        record = reader->next(stop);
      else
        reader->skip_epoch();
      returned = record ? returned + 1 : 0;
      epoch += !record;
      return record;
    }
    StreamPosition position() const override { return {epoch, returned, 0, 0, {reader->position()}}; }
    void skip_epoch() override {
      reader->skip_epoch();
      returned = 0;
      ++epoch;
    }
  };
};

// ---- mix

template <class T>
struct Mix : Transform<T> {
  std::shared_ptr<const Proportions> proportions;

  std::string describe(std::vector<std::string> inputs) const {
    inputs.insert(inputs.begin(), proportions->describe());
    return joined("mix", inputs);
  }

  struct Reader : StreamReader<T> {
    std::vector<std::unique_ptr<StreamReader<T>>> readers;
    std::shared_ptr<const Proportions> proportions;
    bool is_endless = true;
    int64_t epoch, turn;
    Reader(const Mix& mix, const StreamPlans<T>& inputs, const StreamPosition& from, int threads)
        : proportions(mix.proportions), epoch(from.epoch), turn(from.input) {
      const int each = std::max(1, threads / static_cast<int>(inputs.size()));
      for (size_t i = 0; i < inputs.size(); ++i) {
        readers.push_back(inputs[i]->open(part_of(from, i), each));
        is_endless = is_endless && inputs[i]->is_endless();
      }
    }
    std::optional<T> next(const std::atomic<bool>* stop) override {
      const size_t part = proportions->place(turn).part;
      auto record = readers[part]->next(stop);
      if (record)
        ++turn;
      else
        begin_epoch(part);
      return record;
    }
    StreamPosition position() const override {
      StreamPosition position{epoch, turn};
      for (const auto& reader : readers) position.parts.push_back(reader->position());
      return position;
    }
    void skip_epoch() override {
      if (!is_endless) begin_epoch(readers.size());
    }
    void begin_epoch(size_t ended) {  // the reader of input `ended` already is in its next epoch
      for (size_t i = 0; i < readers.size(); ++i)
        if (i != ended) readers[i]->skip_epoch();
      ++epoch;
      turn = 0;
    }
  };
};

// ---- divided

// The parts of a divided stream. A position has one part for each, some of them elsewhere(), or no parts at the
// beginning.
template <class T>
struct DividedPlan {
  StreamPlans<T> parts;

  std::string describe() const {
    return "divided(" + std::to_string(parts.size()) + ", " + parts.front()->describe() + ")";
  }
  std::string missing(const StreamPosition& position) const {
    std::string missing = missing_parts(position, parts.size());
    for (size_t i = 0; missing.empty() && i < position.parts.size(); ++i)
      if (!position.parts[i].is_elsewhere()) missing = parts[i]->missing(position.parts[i]);
    return missing;
  }
  double passes(const StreamPosition& position) const {
    for (size_t i = 0; i < position.parts.size(); ++i)
      if (!position.parts[i].is_elsewhere()) return parts[i]->passes(position.parts[i]);
    return 0;
  }
};

}  // namespace tessera::data::detail
