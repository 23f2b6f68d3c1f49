// What a ledger keeps, and the records made of it.
#include "sharding/accounting/ledger.h"

#include <algorithm>
#include <deque>

#include "sharding/accounting/communication_event.h"

namespace tessera {

using namespace detail;

namespace {

bool matches(const CommRecord& r, const std::string& kind, const std::string& axes) {
  return (kind.empty() || r.kind == kind) && (axes.empty() || r.axes == axes);
}

}  // namespace

CommRecord detail::record_of(const Communication& c) {
  const auto words = [](const Text& text, const Type* type) {
    return text ? *text : type ? type->to_string() : std::string();
  };
  return {.kind = c.kind,
          .axes = c.mesh->names(c.axes),
          .devices = c.mesh->count(c.axes),
          .bytes = c.bytes,
          .operation = c.cause.operation,
          .operand = words(c.operand, c.from),
          .result = words(c.result, c.to),
          .path = words(c.cause.path, nullptr),
          .reason = words(c.cause.reason, nullptr),
          .backward = c.backward,
          .where = c.cause.where};
}

class CommLedger::Book : public Watcher {
 public:
  Book() : Watcher(Role::listens) {}
  void count(const Communication& communication) override { heard_.push_back(communication); }
  void clear() { heard_.clear(), written_.clear(); }

  const std::vector<CommRecord>& written() {
    while (written_.size() < heard_.size()) written_.push_back(record_of(heard_[written_.size()]));
    return written_;
  }

 private:
  std::deque<Communication> heard_;  // which never moves them
  std::vector<CommRecord> written_;  // of the first of them
};

CommLedger::CommLedger() : book_(std::make_unique<Book>()) {}
CommLedger::~CommLedger() = default;

const std::vector<CommRecord>& CommLedger::records() const { return book_->written(); }
void CommLedger::clear() { book_->clear(); }

int64_t CommLedger::count(const std::string& kind, const std::string& axes) const {
  return std::count_if(records().begin(), records().end(), [&](const auto& r) { return matches(r, kind, axes); });
}

int64_t CommLedger::bytes(const std::string& kind, const std::string& axes) const {
  int64_t total = 0;
  for (const CommRecord& r : records())
    if (matches(r, kind, axes)) total += r.bytes;
  return total;
}

CommTime ring_time(double bytes_per_second, double latency) {
  return [=](const CommRecord& r) {
    const auto others = static_cast<double>(r.devices - 1), n = static_cast<double>(r.devices);
    const double passes = r.kind.starts_with("all_reduce") ? 2 : 1;
    const double whole = static_cast<double>(r.bytes) * (r.kind == "reduce_scatter" ? n : 1);
    return passes * (whole * others / n / bytes_per_second + others * latency);
  };
}

}  // namespace tessera
