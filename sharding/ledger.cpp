// The stack of open ledgers and the table they print.
#include "sharding/ledger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tessera {
namespace {

thread_local std::vector<CommLedger*> open_ledgers;

bool matches(const CommRecord& r, const std::string& kind, const std::string& axes) {
  return (kind.empty() || r.kind == kind) && (axes.empty() || r.axes == axes);
}

}  // namespace

CommLedger::CommLedger() { open_ledgers.push_back(this); }
CommLedger::~CommLedger() { open_ledgers.erase(std::find(open_ledgers.begin(), open_ledgers.end(), this)); }

bool ledger_is_open() { return !open_ledgers.empty(); }

void record_communication(CommRecord record) {
  for (CommLedger* ledger : open_ledgers) ledger->records_.push_back(record);
}

int64_t CommLedger::count(const std::string& kind, const std::string& axes) const {
  return std::count_if(records_.begin(), records_.end(), [&](const auto& r) { return matches(r, kind, axes); });
}

int64_t CommLedger::bytes(const std::string& kind, const std::string& axes) const {
  int64_t total = 0;
  for (const CommRecord& r : records_)
    if (matches(r, kind, axes)) total += r.bytes;
  return total;
}

std::string CommLedger::table() const {
  struct Row {
    int64_t count = 0, bytes = 0, devices = 0;
    std::map<std::string, int> operations;
  };
  std::map<std::tuple<bool, std::string, std::string>, Row> rows;
  for (const CommRecord& r : records_) {
    Row& row = rows[{r.backward, r.axes, r.kind}];
    row.count += 1;
    row.bytes += r.bytes;
    row.devices = r.devices;
    row.operations[r.operation] += 1;
  }
  if (rows.empty()) return "no communication\n";

  std::string text = fmt::format("{:<15}{:<14}{:>8}{:>7}{:>14}  {:<9} {}\n", "collective", "mesh axes", "devices",
                                 "count", "bytes/device", "pass", "caused by");
  for (const auto& [key, row] : rows) {
    std::vector<std::string> causes;
    for (const auto& [name, n] : row.operations) causes.push_back(n == 1 ? name : fmt::format("{} x{}", name, n));
    text += fmt::format("{:<15}{:<14}{:>8}{:>7}{:>14}  {:<9} {}\n", std::get<2>(key), std::get<1>(key), row.devices,
                        row.count, row.bytes, std::get<0>(key) ? "backward" : "forward", fmt::join(causes, ", "));
  }
  return text + fmt::format("{:<15}{:<14}{:>8}{:>7}{:>14}\n", "total", "", "", count(), bytes());
}

}  // namespace tessera
