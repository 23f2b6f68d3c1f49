// StepForecast, the bytes and time of one step on one mesh, and Hardware, the speeds for the prediction.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/placement/table.h"
#include "sharding/accounting/ledger.h"
#include "sharding/placement/mesh.h"

namespace tessera::nn {

// The connection between two devices.
struct Link {
  double bytes_per_second = 50e9;
  double latency = 5e-6;  // seconds before the first byte of each message
  friend bool operator==(const Link&, const Link&) = default;
};

// Speeds for predictions; nn::measure_hardware measures them.
struct Hardware {
  double flops_per_second = 200e12;  // speed of one device in matrix products, as measured, not as advertised
  Link link = {};
  std::map<std::string, Link> links = {};  // by mesh axis, if different from `link`
  // Mesh axes along which devices are on several machines. A sum or gather over such an axis and others is predicted as
  // two stages, within a machine and between machines, as in NCCL.
  std::vector<std::string> across = {};
  // Speed at which a device reads and writes its memory; 0: memory traffic takes no time.
  double memory_bytes_per_second = 0;
  // Overhead of an operation: to call and record it, or to launch its kernel.
  double call_seconds = 0;
  // Fraction of a collective's time that does not delay a concurrent computation: 1 if network cards and copy engines
  // do the transfer, less if the computing cores do.
  double overlap = 1;
  friend bool operator==(const Hardware&, const Hardware&) = default;
};

// Collectives of one kind over the same axes.
struct Traffic {
  std::string kind, mesh_axes;
  int64_t num_collectives = 0, bytes = 0;  // bytes as in CommRecord
  double seconds = 0;                      // per device; stages communicate concurrently, so the slowest stage counts
};

// One step on one mesh. Bytes are per device.
struct StepForecast {
  Mesh mesh;
  std::string error;                                     // why the step does not run there; empty if it runs
  std::vector<std::pair<std::string, int64_t>> at_rest;  // bytes by the first name of the paths: model, optimizer
  int64_t activation_bytes = 0, peak_bytes = 0;          // see sharding/accounting/forecast.h
  double flops = 0;
  int64_t num_calls = 0;
  std::vector<Traffic> traffic;
  double compute_seconds = 0;  // including memory traffic and calls
  double communication_seconds = 0;
  double hidden_seconds = 0;  // communication that is concurrent with computation
  double bubble_seconds = 0;  // time that a pipeline stage waits for the others
  int64_t host_bytes = 0;     // in pinned host memory, neither in at_rest nor in peak_bytes; its copies take no time

  double seconds() const { return compute_seconds + communication_seconds - hidden_seconds + bubble_seconds; }
};

// Returns the time of one collective on this hardware. `mesh_axes` as in CommRecord: "data" or "data,model".
double collective_seconds(const std::string& kind, const std::string& mesh_axes, int64_t num_devices, int64_t bytes,
                          const Hardware& hardware);
// Returns the time over axes of this mesh, in two stages if one of them is in Hardware::across.
double collective_seconds(const std::string& kind, const std::string& mesh_axes, const Mesh& mesh, int64_t bytes,
                          const Hardware& hardware);

namespace detail {

// Throw Error (invalid_argument), beginning with `verb`, for a number below its minimum; for speeds that are not above
// 0, or a latency below 0.
void check_at_least(const char* verb, const char* what, int64_t given, int64_t least);
void check_hardware(const char* verb, const Hardware& hardware);

// Runs `step`, which uses the abstract `mesh`. Runs it twice if it gathers weights, because a step gathers in the order
// of the previous step. An Error of the step is stored in the result.
StepForecast forecast_step(const Mesh& mesh, const std::function<PlacementTable()>& step, const Hardware& hardware);

// Returns the end time of a program that does `flops` operations at `flops_per_second` (0: they take no time) and the
// collectives of `records`. The collectives run one after another in the order in which they begin. Each takes
// `time(record)` seconds. The program does not wait when a collective begins, only when it needs the result.
double predicted_seconds(const std::vector<CommRecord>& records, const CommTime& time, double flops_per_second,
                         double flops);

boost::json::object json_of(const StepForecast& forecast);

}  // namespace detail
}  // namespace tessera::nn
