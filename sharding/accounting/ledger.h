// CommLedger: a record of the communication in a scope, with its reasons.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace tessera {

// A moment of a program, in time and in FLOPs.
struct CommMoment {
  double seconds = 0;  // since the ledger was constructed or cleared
  double flops = 0;    // FLOPs of one device until then; only on abstract meshes, as in Forecast
};

// One collective. Bytes are the size of the result on one device, as in XLA: a gather counts the gathered array, a
// reduce-scatter the shard. Shared and private replicas give the same numbers.
struct CommRecord {
  std::string kind;     // all_reduce, all_gather, reduce_scatter, all_to_all
  std::string mesh_axes;    // "data" or "data,model"
  int64_t num_devices = 1;  // in each group
  int64_t bytes = 0;
  std::string operation;  // the operation that needed it
  std::string operand;    // the operand's type: float32[64@data,256]
  std::string result;     // its type after the collective
  std::string path;       // the path, if the operand is a parameter
  std::string reason;     // the reason of the communication
  bool backward = false;
  int stage = -1;  // the pipeline stage (mesh.h) that receives the result; -1: all devices
  // The line of the user's program: the innermost one outside library code. In the backward pass, the line of the
  // forward operation; for the joint reduction of gradients, the line of value_and_grad.
  std::source_location where;
  // When the collective began, when the program began to wait for it, and when it arrived. The wait for a prefetched
  // gather, or for a sum of gradients during the backward pass, begins later. For all other collectives, it begins
  // immediately.
  CommMoment begun = {}, awaited = {}, arrived = {};
};

// An array that was never placed, but that value_and_grad received together with arrays on a mesh of several devices.
// It is replicated, and each device repeats all computations that depend on it alone.
struct UnplacedArray {
  std::string path;  // the struct's type and the path in it, "Batch.x"; "argument 2" for a bare array
  std::string type;  // float32[32,512]
  std::source_location where;  // the line of value_and_grad
};

// Predicts the time of a collective, in seconds.
using CommTime = std::function<double(const CommRecord&)>;
// Returns the time of a ring: the bytes that one device sends divided by `bytes_per_second`, plus `latency` seconds per
// step of the ring. A device sends about twice the array for an all_reduce, else about once.
CommTime ring_time(double bytes_per_second, double latency = 0);

// Records each collective of this thread between its construction and its destruction. Scopes nest: each records all
// collectives inside it. Recording stores handles, which are formatted when you read them.
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
  // Returns each unplaced array once per source line. The tables list these arrays at the end. They are not an error
  // (JAX's uncommitted arrays behave in the same way), but usually a from_process_local or a filter_shard is missing.
  const std::vector<UnplacedArray>& unplaced() const;
  void clear();

  // Return the number of collectives of a kind ("" for all) over these axes ("" for any), and their bytes.
  int64_t count(const std::string& kind = "", const std::string& mesh_axes = "") const;
  int64_t bytes(const std::string& kind = "", const std::string& mesh_axes = "") const;

  // Returns one row per kind, axes and pass: count, bytes, and the operations that caused them. "no communication" if
  // there is none.
  std::string to_text() const;
  std::string to_markdown() const;
  friend std::ostream& operator<<(std::ostream& out, const CommLedger& ledger);  // prints to_text()
  // Returns one row per set of mesh axes: devices, and count and bytes in each pass.
  std::string to_text_by_mesh_axis() const;
  // Returns one row per line of the program, most bytes first: "model.cpp:31", count, bytes, the collectives and their
  // operations. File names have as few trailing parts of their path as make them unique.
  std::string to_text_by_line() const;

  // Returns all records with their fields, in order: {"collectives": [{"kind": "all_gather", ..., "file":
  // "/src/model.cpp", "line": 31}, ...], "count": 7, "bytes": 4096, "unplaced": [{"path", "type", "file", "line"},
  // ...]}.
  std::string to_json() const;
  // Returns a trace for chrome://tracing or Perfetto, by this thread's clock. One track has the computation, with gaps
  // where the program waits. Each set of mesh axes has a track, on which a collective lasts from its begin to its
  // arrival. Collectives that overlap each other have separate tracks.
  std::string chrome_trace() const;

 private:
  class Book;
  std::unique_ptr<Book> book_;
};

}  // namespace tessera
