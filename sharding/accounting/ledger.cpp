// An observer that stores communications and makes their records.
#include "sharding/accounting/ledger.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <string_view>

#include "sharding/accounting/communication_event.h"
#include "sharding/array/abstract_tensor.h"

namespace tessera {

using namespace detail;

namespace {

bool matches(const CommRecord& r, const std::string& kind, const std::string& mesh_axes) {
  return (kind.empty() || r.kind == kind) && (mesh_axes.empty() || r.mesh_axes == mesh_axes);
}

}  // namespace

CommRecord detail::record_of(const Communication& c) {
  const auto words = [](const Text& text, const Type* type) {
    return text ? *text : type ? type->to_string() : std::string();
  };
  return {.kind = c.kind,
          .mesh_axes = c.mesh->names(c.axes),
          .num_devices = c.mesh->count(c.axes),
          .bytes = c.bytes,
          .operation = c.cause.operation,
          .operand = words(c.operand, c.from),
          .result = words(c.result, c.to),
          .path = words(c.cause.path, nullptr),
          .reason = words(c.cause.reason, nullptr),
          .backward = c.backward,
          .stage = cut_of(c.mesh)               ? c.mesh->cut_at
                   : c.to && cut_of(c.to->mesh) ? c.to->mesh->cut_at
                                                : -1,
          .where = c.cause.where};
}

class CommLedger::Book : public Observer {
 public:
  Book() : Observer(Events::communication) {}
  void communicated(const Communication& communication) override {
    const CommMoment moment = now();
    CommMoment begun = moment;
    if (const std::chrono::duration<double> since = communication.began - start_; communication.began != Time())
      begun.seconds = std::max(0.0, since.count());
    received_.push_back({communication, begun, moment, moment});
  }
  void awaited(int64_t number) override { note(number, &Received::awaited, &CommRecord::awaited); }
  void arrived(int64_t number) override { note(number, &Received::arrived, &CommRecord::arrived); }
  void found_unplaced(const UnplacedArray& x) override {
    const auto is_same = [&](const UnplacedArray& known) {
      return known.path == x.path && known.type == x.type && known.where.line() == x.where.line() &&
             known.where.file_name() == std::string_view(x.where.file_name());
    };
    if (std::none_of(unplaced_.begin(), unplaced_.end(), is_same)) unplaced_.push_back(x);
  }
  const std::vector<UnplacedArray>& unplaced() const { return unplaced_; }
  void clear() {
    received_.clear(), written_.clear(), unplaced_.clear();
    start_ = std::chrono::steady_clock::now();
    flops_ = flops_so_far();
  }

  const std::vector<CommRecord>& written() {
    while (written_.size() < received_.size()) {
      const Received& received = received_[written_.size()];
      written_.push_back(record_of(received.communication));
      CommRecord& r = written_.back();
      r.begun = received.begun, r.awaited = received.awaited, r.arrived = received.arrived;
    }
    return written_;
  }
  CommMoment now() const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    return {passed.count(), flops_so_far() - flops_};
  }

 private:
  struct Received {
    Communication communication;
    CommMoment begun, awaited, arrived;
  };
  using Time = std::chrono::steady_clock::time_point;
  // Returns the FLOPs of the outermost meter, because it has counted for the longest time.
  static double flops_so_far() {
    const Meter* meter = current_meter().get();
    while (meter && meter->outer) meter = meter->outer.get();
    return meter ? meter->flops.most() : 0;
  }
  void note(int64_t number, CommMoment Received::*received, CommMoment CommRecord::*written) {
    const std::optional<size_t> index = index_of(number, received_);
    if (!index) return;
    received_[*index].*received = now();
    if (*index < written_.size()) written_[*index].*written = received_[*index].*received;
  }

  std::deque<Received> received_;    // a deque does not move its elements when it grows
  std::vector<CommRecord> written_;  // the records of the first of `received_`
  std::vector<UnplacedArray> unplaced_;
  Time start_ = std::chrono::steady_clock::now();
  double flops_ = flops_so_far();
};

CommLedger::CommLedger() : book_(std::make_unique<Book>()) {}
CommLedger::~CommLedger() = default;

const std::vector<CommRecord>& CommLedger::records() const { return book_->written(); }
const std::vector<UnplacedArray>& CommLedger::unplaced() const { return book_->unplaced(); }
void CommLedger::clear() { book_->clear(); }

int64_t CommLedger::count(const std::string& kind, const std::string& mesh_axes) const {
  return std::count_if(records().begin(), records().end(), [&](const auto& r) { return matches(r, kind, mesh_axes); });
}

int64_t CommLedger::bytes(const std::string& kind, const std::string& mesh_axes) const {
  int64_t total = 0;
  for (const CommRecord& r : records())
    if (matches(r, kind, mesh_axes)) total += r.bytes;
  return total;
}

CommTime ring_time(double bytes_per_second, double latency) {
  return [=](const CommRecord& r) {
    const auto others = static_cast<double>(r.num_devices - 1), n = static_cast<double>(r.num_devices);
    const double passes = r.kind.starts_with("all_reduce") ? 2 : 1;
    const double whole = static_cast<double>(r.bytes) * (r.kind == "reduce_scatter" ? n : 1);
    return passes * (whole * others / n / bytes_per_second + others * latency);
  };
}

}  // namespace tessera
