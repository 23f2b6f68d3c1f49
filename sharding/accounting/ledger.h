// CommLedger: what the devices communicate inside a scope, and why.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace tessera {

// A moment of a program, as its ledger sees it.
struct CommMoment {
  double seconds = 0;  // since the ledger began, or was cleared
  double flops = 0;    // operations of one device until then, on abstract meshes, as a Forecast counts them
};

// One collective. Bytes are those of the result on one device, as XLA counts them: a gather counts the gathered
// array, a reduce-scatter the shard. The same with shared and with private replicas.
struct CommRecord {
  std::string kind;     // all_reduce, all_gather, reduce_scatter, all_to_all
  std::string mesh_axes;    // "data" or "data,model"
  int64_t num_devices = 1;  // in each group
  int64_t bytes = 0;
  std::string operation;  // the operation that needed it
  std::string operand;    // the operand's type before: float32[64@data,256]
  std::string result;     // and after
  std::string path;       // the parameter's path, where it is one
  std::string reason;     // why it had to move
  bool backward = false;
  int stage = -1;  // of stages (sub_mesh.h): the one that has the result, while others have theirs; -1: of all devices
  // The line of the user's program: the innermost one that is not the library's. In the backward pass, the line of the
  // forward operation; for the gradients' common reduction, the line of value_and_grad.
  std::source_location where;
  // When it was begun, when the program began to wait for it, and when it arrived. A collective that is begun early, as
  // a gather of the next block's weights or a sum of gradients during the backward pass, is awaited later; every other
  // is awaited as soon as it is begun.
  CommMoment begun = {}, awaited = {}, arrived = {};
};

// An array that value_and_grad takes together with others on a mesh of several devices, and that was never placed. It
// is replicated, and each device computes all that depends on it alone.
struct UnplacedArray {
  std::string path;  // the type of its struct and the path in it, "Batch.x"; of an array by itself "argument 2"
  std::string type;  // float32[32,512]
  std::source_location where;  // the line of value_and_grad
};

// Predicts the time of a collective, in seconds.
using CommTime = std::function<double(const CommRecord&)>;
// The time of a ring: the bytes that one device sends (of an all_reduce about twice the array, else about once) divided
// by `bytes_per_second`, plus `latency` seconds for each of the ring's steps.
CommTime ring_time(double bytes_per_second, double latency = 0);

// Records every collective of this thread between its construction and its destruction. Scopes nest: each sees what
// happens inside it. Recording stores handles only; they are spelled out when they are read.
//   CommLedger ledger;
//   step(model, batch);
//   std::cout << ledger.to_text();
class CommLedger {
 public:
  CommLedger();
  ~CommLedger();
  CommLedger(const CommLedger&) = delete;
  CommLedger& operator=(const CommLedger&) = delete;

  const std::vector<CommRecord>& records() const;
  // Each once for each line. The tables end with them; nothing else does, since it is no mistake (JAX's uncommitted
  // arrays do the same), but most often it is a from_process_local or a filter_shard that was forgotten.
  const std::vector<UnplacedArray>& unplaced() const;
  void clear();

  // Collectives of a kind ("" for all) over these axes ("" for any): how many, and their bytes.
  int64_t count(const std::string& kind = "", const std::string& mesh_axes = "") const;
  int64_t bytes(const std::string& kind = "", const std::string& mesh_axes = "") const;

  // One row per kind, axes and direction: count, bytes, and the operations that caused it. "no communication" if none.
  std::string to_text() const;
  std::string to_markdown() const;
  friend std::ostream& operator<<(std::ostream& out, const CommLedger& ledger);  // prints to_text()
  // One row per set of mesh axes: devices, count and bytes in each pass.
  std::string to_text_by_mesh_axis() const;
  // One row per line of the program, the most bytes first: "model.cpp:31", count, bytes, what moves and for whom. A
  // file is named by its last part, or by as many as tell it from the others.
  std::string to_text_by_line() const;

  // Every record with all its fields, in order: {"collectives": [{"kind": "all_gather", ..., "file": "/src/model.cpp",
  // "line": 31}, ...], "count": 7, "bytes": 4096, "unplaced": [{"path", "type", "file", "line"}, ...]}.
  std::string to_json() const;
  // A trace for chrome://tracing or Perfetto, by this thread's clock: a track for the computation, which has gaps where
  // the program waits, and one for each set of mesh axes, on which a collective lasts from its begin to its arrival.
  // A collective that was begun early overlaps the computation. Collectives that overlap have tracks of their own.
  std::string chrome_trace() const;

 private:
  class Book;
  std::unique_ptr<Book> book_;
};

}  // namespace tessera
