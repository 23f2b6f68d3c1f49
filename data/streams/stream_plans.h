// What is made of whole streams: their records mapped, shuffled in windows, limited, and mixed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/combine.h"
#include "data/datasets/shuffle.h"
#include "data/streams/record_reader.h"

namespace tessera::data::detail {

void check_stream_shuffle(int64_t window);
void check_limit(int64_t count);
void check_divided(int64_t parts, bool is_endless);
void check_part(bool is_endless);

template <class T>
using PlanPtr = std::shared_ptr<const StreamPlan<T>>;
template <class T>
using Parts = std::vector<PlanPtr<T>>;

// Why a mark with parts is no place of streams of these plans; empty: it is.
std::string missing_numbers(const StreamMark& mark, size_t parts);
template <class T>
std::string missing_in(const StreamMark& mark, const std::vector<PlanPtr<T>>& plans) {
  std::string missing = missing_numbers(mark, plans.size());
  for (size_t i = 0; missing.empty() && i < mark.parts.size(); ++i) missing = plans[i]->missing(mark.parts[i]);
  return missing;
}
inline StreamMark part_of(const StreamMark& mark, size_t i) {
  return mark.parts.empty() ? StreamMark{} : mark.parts[i];
}

// ---- map

template <class T, class F>
struct MappedPlan : StreamPlan<std::decay_t<std::invoke_result_t<const F&, T>>> {
  using Result = std::decay_t<std::invoke_result_t<const F&, T>>;
  struct Reader : RecordReader<Result> {
    std::unique_ptr<RecordReader<T>> reader;
    F f;
    Reader(std::unique_ptr<RecordReader<T>> r, F function) : reader(std::move(r)), f(std::move(function)) {}
    std::optional<Result> next(const std::atomic<bool>* stop) override {
      const StreamMark before = reader->mark();
      std::optional<T> record = reader->next(stop);
      if (!record) return std::nullopt;
      try {
        return std::invoke(f, std::move(*record));
      } catch (...) {
        fail_at_stream_record(before);
      }
    }
    StreamMark mark() const override { return reader->mark(); }
    void skip_epoch() override { reader->skip_epoch(); }
  };

  PlanPtr<T> plan;
  F f;
  MappedPlan(PlanPtr<T> p, F function) : plan(std::move(p)), f(std::move(function)) {}
  std::unique_ptr<RecordReader<Result>> open(const StreamMark& from, int threads) const override {
    return std::make_unique<Reader>(plan->open(from, threads), f);
  }
  std::string describe() const override { return plan->describe() + " | map"; }
  bool is_endless() const override { return plan->is_endless(); }
  std::string missing(const StreamMark& mark) const override { return plan->missing(mark); }
  double passes(const StreamMark& mark) const override { return plan->passes(mark); }
};

// ---- shuffle

template <class T>
class ShuffledReader : public RecordReader<T> {
 public:
  ShuffledReader(const PlanPtr<T>& plan, int64_t window, uint64_t seed, const StreamMark& from, int threads)
      : reader_(plan->open(part_of(from, 0), threads)),
        max_window_(window),
        seed_(seed),
        is_endless_(plan->is_endless()),
        epoch_(from.epoch),
        number_(from.input),
        begin_(reader_->mark()) {
    if (from.since == 0) return;
    fill(nullptr);
    if (from.since > static_cast<int64_t>(window_.size())) fail_misplaced(from);
    given_ = from.since;
  }

  std::optional<T> next(const std::atomic<bool>* stop) override {
    if (is_spent() && !is_last_) begin_window(), fill(stop);
    if (is_spent()) {
      begin_epoch();
      return std::nullopt;
    }
    const Permutation order(static_cast<int64_t>(window_.size()), epoch_seed(epoch_seed(seed_, epoch_), number_));
    return std::move(window_[static_cast<size_t>(order(given_++))]);
  }

  StreamMark mark() const override {
    if (is_spent() && !is_last_ && !window_.empty()) return {epoch_, number_ + 1, 0, 0, {reader_->mark()}};
    return {epoch_, number_, 0, given_, {begin_}};
  }

  void skip_epoch() override {
    if (is_endless_) return;
    if (!is_last_) reader_->skip_epoch();
    begin_epoch();
  }

 private:
  bool is_spent() const { return given_ == static_cast<int64_t>(window_.size()); }

  // After the one that was given out; the first follows none.
  void begin_window() {
    if (!window_.empty()) ++number_;
    window_.clear();
    given_ = 0;
    begin_ = reader_->mark();
  }
  void fill(const std::atomic<bool>* stop) {
    std::vector<T> window;
    bool is_last = false;
    while (!is_last && static_cast<int64_t>(window.size()) < max_window_) {
      auto record = reader_->next(stop);
      if (record)
        window.push_back(std::move(*record));
      else
        is_last = true;
    }
    window_ = std::move(window);
    is_last_ = is_last;
  }
  void begin_epoch() {
    ++epoch_;
    number_ = given_ = 0;
    window_.clear();
    is_last_ = false;
    begin_ = reader_->mark();
  }

  std::unique_ptr<RecordReader<T>> reader_;
  int64_t max_window_;
  uint64_t seed_;
  bool is_endless_;
  int64_t epoch_, number_;  // of the window
  StreamMark begin_;        // where the window's first record lies
  std::vector<T> window_;
  int64_t given_ = 0;
  bool is_last_ = false;  // the epoch ends with this window
};

template <class T>
struct ShuffledPlan : StreamPlan<T> {
  PlanPtr<T> plan;
  int64_t window;
  uint64_t seed;
  ShuffledPlan(PlanPtr<T> p, int64_t w, uint64_t s) : plan(std::move(p)), window(w), seed(s) {}
  std::unique_ptr<RecordReader<T>> open(const StreamMark& from, int threads) const override {
    return std::make_unique<ShuffledReader<T>>(plan, window, seed, from, threads);
  }
  std::string describe() const override {
    return plan->describe() + " | shuffle(" + std::to_string(window) + ", " + std::to_string(seed) + ")";
  }
  bool is_endless() const override { return plan->is_endless(); }
  std::string missing(const StreamMark& mark) const override { return missing_in<T>(mark, {plan}); }
  double passes(const StreamMark& mark) const override { return plan->passes(part_of(mark, 0)); }
};

// ---- limit

template <class T>
struct LimitedPlan : StreamPlan<T> {
  struct Reader : RecordReader<T> {
    std::unique_ptr<RecordReader<T>> reader;
    int64_t count, epoch, given;
    Reader(const LimitedPlan& limited, const StreamMark& from, int threads)
        : reader(limited.plan->open(part_of(from, 0), threads)),
          count(limited.count),
          epoch(from.epoch),
          given(from.input) {}
    std::optional<T> next(const std::atomic<bool>* stop) override {
      std::optional<T> record;
      if (given < count)
        record = reader->next(stop);
      else
        reader->skip_epoch();
      given = record ? given + 1 : 0;
      epoch += !record;
      return record;
    }
    StreamMark mark() const override { return {epoch, given, 0, 0, {reader->mark()}}; }
    void skip_epoch() override {
      reader->skip_epoch();
      given = 0;
      ++epoch;
    }
  };

  PlanPtr<T> plan;
  int64_t count;
  LimitedPlan(PlanPtr<T> p, int64_t c) : plan(std::move(p)), count(c) {}
  std::unique_ptr<RecordReader<T>> open(const StreamMark& from, int threads) const override {
    return std::make_unique<Reader>(*this, from, threads);
  }
  std::string describe() const override { return plan->describe() + " | limit(" + std::to_string(count) + ")"; }
  bool is_endless() const override { return false; }
  std::string missing(const StreamMark& mark) const override { return missing_in<T>(mark, {plan}); }
  double passes(const StreamMark& mark) const override { return plan->passes(part_of(mark, 0)); }
};

// ---- mix

template <class T>
struct MixedPlan : StreamPlan<T> {
  struct Reader : RecordReader<T> {
    std::vector<std::unique_ptr<RecordReader<T>>> readers;
    std::shared_ptr<const Proportions> proportions;
    bool is_endless;
    int64_t epoch, turn;
    Reader(const MixedPlan& mixed, const StreamMark& from, int threads)
        : proportions(mixed.proportions), is_endless(mixed.is_endless()), epoch(from.epoch), turn(from.input) {
      const int each = std::max(1, threads / static_cast<int>(mixed.plans.size()));
      for (size_t i = 0; i < mixed.plans.size(); ++i) readers.push_back(mixed.plans[i]->open(part_of(from, i), each));
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
    StreamMark mark() const override {
      StreamMark mark{epoch, turn};
      for (const auto& reader : readers) mark.parts.push_back(reader->mark());
      return mark;
    }
    void skip_epoch() override {
      if (!is_endless) begin_epoch(readers.size());
    }
    void begin_epoch(size_t ended) {  // that part stands in its next epoch already
      for (size_t i = 0; i < readers.size(); ++i)
        if (i != ended) readers[i]->skip_epoch();
      ++epoch;
      turn = 0;
    }
  };

  std::shared_ptr<const Proportions> proportions;
  std::vector<PlanPtr<T>> plans;
  MixedPlan(const std::vector<double>& weights, std::vector<PlanPtr<T>> p)
      : proportions(std::make_shared<const Proportions>(weights)), plans(std::move(p)) {}
  std::unique_ptr<RecordReader<T>> open(const StreamMark& from, int threads) const override {
    return std::make_unique<Reader>(*this, from, threads);
  }
  std::string describe() const override {
    std::vector<std::string> words{proportions->describe()};
    for (const auto& plan : plans) words.push_back(plan->describe());
    return joined("mix", words);
  }
  bool is_endless() const override {
    return std::all_of(plans.begin(), plans.end(), [](const auto& plan) { return plan->is_endless(); });
  }
  std::string missing(const StreamMark& mark) const override { return missing_in<T>(mark, plans); }
  double passes(const StreamMark& mark) const override { return plans[0]->passes(part_of(mark, 0)); }
};

}  // namespace tessera::data::detail
