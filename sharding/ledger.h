// CommLedger: what the devices communicate inside a scope, and why.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace tessera {

// One collective. Bytes are those of the result on one device, as XLA counts them: a gather counts the gathered
// array, a reduce-scatter the shard. The same with shared and with private replicas.
struct CommRecord {
  std::string kind;     // all_reduce, all_gather, reduce_scatter, all_to_all
  std::string axes;     // mesh axes, "data" or "data,model"
  int64_t devices = 1;  // in each group
  int64_t bytes = 0;
  std::string operation;  // the operation that needed it
  std::string operand;    // the operand's type before: float32[64@data,256]
  std::string result;     // and after
  std::string path;       // the parameter's path, where it is one
  std::string reason;     // why it had to move
  bool backward = false;
  std::source_location where;
};

// Records every collective of this thread between its construction and its destruction. Scopes nest: each sees
// what happens inside it.
//   CommLedger ledger;
//   step(model, batch);
//   std::cout << ledger.table();
class CommLedger {
 public:
  CommLedger();
  ~CommLedger();
  CommLedger(const CommLedger&) = delete;
  CommLedger& operator=(const CommLedger&) = delete;

  const std::vector<CommRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

  // Collectives of a kind ("" for all) over these axes ("" for any): how many, and their bytes.
  int64_t count(const std::string& kind = "", const std::string& axes = "") const;
  int64_t bytes(const std::string& kind = "", const std::string& axes = "") const;

  // One row per kind, axes and direction: count, bytes, and the operations that caused it. "no communication" if none.
  std::string table() const;

 private:
  friend void record_communication(CommRecord record);
  std::vector<CommRecord> records_;
};

// Whether any ledger listens, and telling all that do: for the files that move bytes.
bool ledger_is_open();
void record_communication(CommRecord record);

}  // namespace tessera
