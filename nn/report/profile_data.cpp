// Nests the slices of a profile, and converts a process's profile to text and back.
#include "nn/report/profile_data.h"

#include <algorithm>
#include <boost/json.hpp>
#include <queue>
#include <stdexcept>

#include "sharding/base/fail.h"

namespace tessera::nn::detail {

namespace json = boost::json;

const char* name_of(TimePart part) {
  constexpr const char* names[] = {"computation", "collectives", "input", "device", "program"};
  return names[static_cast<size_t>(part)];
}

const char* name_of(Pass pass) {
  constexpr const char* names[] = {"forward", "backward", "recomputation", "update"};
  return names[static_cast<size_t>(pass)];
}

namespace {

// ---- nesting

// Orders by begin. If several slices have the same begin, the one that ends last comes first, because it contains the
// others.
struct ComesLater {
  bool operator()(const Slice& a, const Slice& b) const {
    return a.begin != b.begin ? a.begin > b.begin : a.end != b.end ? a.end < b.end : a.is_scope < b.is_scope;
  }
};

// Operations directly in the backward pass, outside of an operation's backward function, are recomputations.
Pass pass_in(const Slice& outer, const Slice& slice) {
  if (outer.parent < 0 || slice.is_scope) return slice.pass;
  if (outer.pass != Pass::backward) return outer.pass == Pass::forward ? slice.pass : outer.pass;
  const bool recomputed = slice.part == TimePart::computation || slice.part == TimePart::collectives;
  return recomputed && outer.is_scope && slice.pass != Pass::backward ? Pass::recomputation : Pass::backward;
}

class Nesting {
 public:
  Nesting(const Slice& step, const std::vector<Slice>& slices) : slices_{step}, waiting_(ComesLater(), slices) {
    open_.push_back(0);
    slices_[0].alone = step.end - step.begin;
  }

  std::vector<Slice> run() {
    while (!waiting_.empty()) {
      Slice slice = waiting_.top();
      waiting_.pop();
      if (slice.begin < slices_[0].begin) slice.begin = slices_[0].begin;
      if (slice.end > slices_[0].end) slice.end = slices_[0].end;
      if (slice.begin < slice.end) place(slice);
    }
    return std::move(slices_);
  }

 private:
  Slice& innermost() { return slices_[static_cast<size_t>(open_.back())]; }

  void place(Slice slice) {
    while (innermost().end <= slice.begin) open_.pop_back();
    if (slice.end > innermost().end) {
      slice.begin = innermost().end;
      return waiting_.push(slice);
    }
    slice.parent = open_.back();
    slice.alone = slice.end - slice.begin;
    slice.pass = pass_in(innermost(), slice);
    innermost().alone -= slice.alone;
    open_.push_back(static_cast<int>(slices_.size()));
    slices_.push_back(slice);
  }

  std::vector<Slice> slices_;
  std::vector<int> open_;
  std::priority_queue<Slice, std::vector<Slice>, ComesLater> waiting_;
};

// ---- waits for collectives

// Returns the first slice that begins at `moment` or later.
size_t first_from(const std::vector<Slice>& slices, int64_t moment) {
  const auto is_before = [](const Slice& slice, int64_t m) { return slice.begin < m; };
  return static_cast<size_t>(std::lower_bound(slices.begin() + 1, slices.end(), moment, is_before) - slices.begin());
}

int wait_of(const StepSlices& step, const Transfer& transfer) {
  for (size_t i = first_from(step.slices, transfer.awaited); i < step.slices.size(); ++i) {
    if (step.slices[i].begin > transfer.arrived) break;
    if (step.slices[i].part == TimePart::collectives && step.slices[i].end == transfer.arrived)
      return static_cast<int>(i);
  }
  return -1;
}

// Returns the next call of the operation for which the transfer was made, on the same line.
int consumer_of(const StepSlices& step, const Transfer& transfer) {
  constexpr size_t farthest = 64;
  const size_t first = first_from(step.slices, transfer.arrived);
  for (size_t i = first; i < std::min(first + farthest, step.slices.size()); ++i) {
    const Slice& slice = step.slices[i];
    if (slice.part == TimePart::computation && slice.name == transfer.operation && slice.line == transfer.line &&
        slice.file == transfer.file && slice.pass == transfer.pass)
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

StepSlices nested(const Slice& step, std::vector<Slice> slices, std::vector<Transfer> transfers) {
  StepSlices result{.slices = Nesting(step, slices).run(), .transfers = std::move(transfers)};
  for (Transfer& transfer : result.transfers) {
    result.waits.push_back(wait_of(result, transfer));
    if (result.waits.back() >= 0) transfer.pass = result.slices[static_cast<size_t>(result.waits.back())].pass;
    result.consumers.push_back(consumer_of(result, transfer));
  }
  return result;
}

int ProcessProfile::number_of(std::string_view text) {
  if (numbers_.empty()) numbers_[""] = 0;
  const auto known = numbers_.find(text);
  if (known != numbers_.end()) return known->second;
  texts.emplace_back(text);
  return numbers_[texts.back()] = static_cast<int>(texts.size()) - 1;
}

// ---- text

namespace {

json::array array_of(const Slice& s) {
  return {s.begin,
          s.end,
          static_cast<int>(s.part),
          static_cast<int>(s.pass),
          s.name,
          s.module,
          s.file,
          s.line,
          s.is_scope,
          s.parent,
          s.alone};
}

json::array array_of(const Transfer& t) {
  return {
      t.begin, t.awaited, t.arrived, static_cast<int>(t.pass), t.kind, t.axes, t.operation, t.path, t.reason, t.file,
      t.line,  t.bytes,   t.devices};
}

// Throws for a text that packed() did not make. unpacked() adds the number of the process that sent it.
void expect(bool is_so, const char* what) {
  if (!is_so) throw std::runtime_error(what);
}

// Bound for which differences and sums of a few numbers do not overflow: 73 years in nanoseconds.
constexpr int64_t max_number = int64_t{1} << 61;

void read_number(const json::value& from, bool& number) { number = from.as_bool(); }
void read_number(const json::value& from, int& number) { number = from.to_number<int>(); }
void read_number(const json::value& from, int64_t& number) {
  number = from.to_number<int64_t>();
  expect(number >= -max_number && number <= max_number, "a number out of range");
}
void read_number(const json::value& from, TimePart& part) {
  part = static_cast<TimePart>(from.to_number<uint8_t>());
  expect(part <= TimePart::program, "an unknown part");
}
void read_number(const json::value& from, Pass& pass) {
  pass = static_cast<Pass>(from.to_number<uint8_t>());
  expect(pass <= Pass::update, "an unknown pass");
}

// Reads an array of exactly these numbers.
template <class... T>
void read_numbers(const json::value& array, T&... numbers) {
  expect(array.as_array().size() == sizeof...(numbers), "an array of another length");
  const json::value* next = array.as_array().data();
  (read_number(*next++, numbers), ...);
}

// Requires that the texts and slices to which indices refer have been read.
template <class... Index>
void expect_indices(size_t size, Index... indices) {
  expect(((indices >= 0 && static_cast<size_t>(indices) < size) && ...), "an index out of range");
}

// Reads slice number `index`. The first slice has no parent; the parent of every other slice precedes it.
Slice slice_of(const json::value& array, const ProcessProfile& profile, size_t index) {
  Slice s;
  read_numbers(array, s.begin, s.end, s.part, s.pass, s.name, s.module, s.file, s.line, s.is_scope, s.parent, s.alone);
  expect_indices(profile.texts.size(), s.name, s.module, s.file);
  expect(index == 0 ? s.parent == -1 : s.parent >= 0 && static_cast<size_t>(s.parent) < index, "a parent out of order");
  return s;
}

Transfer transfer_of(const json::value& array, const ProcessProfile& profile) {
  Transfer t;
  read_numbers(array, t.begin, t.awaited, t.arrived, t.pass, t.kind, t.axes, t.operation, t.path, t.reason, t.file,
               t.line, t.bytes, t.devices);
  expect_indices(profile.texts.size(), t.kind, t.axes, t.operation, t.path, t.reason, t.file);
  return t;
}

// Returns the slice of the step for each transfer, or -1.
std::vector<int> slices_of_transfers(const json::value& array, const StepSlices& step) {
  auto slices = json::value_to<std::vector<int>>(array);
  expect(slices.size() == step.transfers.size(), "an array of another length");
  for (const int slice : slices) expect(slice >= -1 && slice < static_cast<int>(step.slices.size()), "no such slice");
  return slices;
}

ProcessProfile profile_of(const json::value& root) {
  ProcessProfile profile;
  read_number(root.at("process"), profile.process);
  read_number(root.at("clock_ahead"), profile.clock_ahead);
  read_number(root.at("clock_error"), profile.clock_error);
  profile.texts = json::value_to<std::vector<std::string>>(root.at("texts"));
  for (const json::value& step : root.at("steps").as_array()) {
    StepSlices& read = profile.steps.emplace_back();
    for (const json::value& slice : step.at("slices").as_array())
      read.slices.push_back(slice_of(slice, profile, read.slices.size()));
    expect(!read.slices.empty(), "a step without slices");
    for (const json::value& transfer : step.at("transfers").as_array())
      read.transfers.push_back(transfer_of(transfer, profile));
    read.waits = slices_of_transfers(step.at("waits"), read);
    read.consumers = slices_of_transfers(step.at("consumers"), read);
  }
  expect(!profile.steps.empty(), "no steps");
  return profile;
}

}  // namespace

std::string packed(const ProcessProfile& profile) {
  json::array steps;
  for (const StepSlices& step : profile.steps) {
    json::array slices, transfers;
    for (const Slice& slice : step.slices) slices.push_back(array_of(slice));
    for (const Transfer& transfer : step.transfers) transfers.push_back(array_of(transfer));
    steps.push_back({{"slices", std::move(slices)},
                     {"transfers", std::move(transfers)},
                     {"waits", json::value_from(step.waits)},
                     {"consumers", json::value_from(step.consumers)}});
  }
  return json::serialize(json::object{{"process", profile.process},
                                      {"clock_ahead", profile.clock_ahead},
                                      {"clock_error", profile.clock_error},
                                      {"texts", json::value_from(profile.texts)},
                                      {"steps", std::move(steps)}});
}

ProcessProfile unpacked(std::string_view text, int process) try {
  ProcessProfile profile = profile_of(json::parse(text));
  expect(profile.process == process, "another process's number");
  return profile;
} catch (const std::exception& error) {
  fail(ErrorKind::other, "profile",
       "process {} sends {} bytes that are not a profile: {}. Run the same program in all processes.", process,
       text.size(), error.what());
}

}  // namespace tessera::nn::detail
