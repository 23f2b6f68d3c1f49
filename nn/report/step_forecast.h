// StepForecast: the bytes and time of one step on one mesh; Hardware: the speeds that times are predicted with.
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

// Speeds that times are predicted with; nn::measure_hardware measures them.
struct Hardware {
  double flops_per_second = 200e12;  // of one device in matrix products, as measured, not as advertised
  Link link = {};
  std::map<std::string, Link> links = {};  // by mesh axis, where it is another
  // The mesh axes along which devices are on several machines. A sum or gather over one of them and others is counted
  // in two stages, within a machine and between the machines (docs/processes.md).
  std::vector<std::string> across = {};
  // The speed of a device at reading and writing its memory; 0: memory traffic takes no time.
  double memory_bytes_per_second = 0;
  // The overhead of an operation: to call and record it, or to launch its kernel.
  double call_seconds = 0;
  // The fraction of a collective's time that does not delay a concurrent computation: 1 if network cards and copy
  // engines carry it, less if the computing cores do.
  double overlap = 1;
  friend bool operator==(const Hardware&, const Hardware&) = default;
};

// The collectives of one kind over the same axes.
struct Traffic {
  std::string kind, mesh_axes;
  int64_t num_collectives = 0, bytes = 0;  // bytes as in CommRecord
  double seconds = 0;  // of a device; stages communicate concurrently, so the stage that takes longest counts
};

// One step on one mesh; bytes are those of one device.
struct StepForecast {
  Mesh mesh;
  std::string error;                                     // why the step does not run there; empty: it does
  std::vector<std::pair<std::string, int64_t>> at_rest;  // bytes by the first name of the paths: model, optimizer
  int64_t activation_bytes = 0, peak_bytes = 0;          // see sharding/accounting/forecast.h
  double flops = 0;
  int64_t num_calls = 0;
  std::vector<Traffic> traffic;
  double compute_seconds = 0;  // with reading and writing memory, and calls
  double communication_seconds = 0;
  double hidden_seconds = 0;  // of the communication: concurrent with the computation
  double bubble_seconds = 0;  // that a stage of a pipeline waits for the others

  double seconds() const { return compute_seconds + communication_seconds - hidden_seconds + bubble_seconds; }
};

// The time of one collective on this hardware. `mesh_axes` as in CommRecord: "data" or "data,model".
double collective_seconds(const std::string& kind, const std::string& mesh_axes, int64_t num_devices, int64_t bytes,
                          const Hardware& hardware);
// The same over axes of this mesh, in two stages if one of them is in Hardware::across.
double collective_seconds(const std::string& kind, const std::string& mesh_axes, const Mesh& mesh, int64_t bytes,
                          const Hardware& hardware);

namespace detail {

// Errors (invalid_argument) that begin with `verb`: a number below the least that it can be; speeds that are not above
// 0, a latency below 0.
void check_at_least(const char* verb, const char* what, int64_t given, int64_t least);
void check_hardware(const char* verb, const Hardware& hardware);

// Runs `step`, which uses the abstract `mesh`; twice if it gathers weights, because a step gathers in the order of the
// step before. An Error of the step is in the result.
StepForecast forecast_step(const Mesh& mesh, const std::function<PlacementTable()>& step, const Hardware& hardware);

// Returns when a program ends that does `flops` operations at `flops_per_second` (0: they take no time) and the
// collectives of `records`. The collectives run one after another in the order of their begins, each for `time`. The
// program continues after it begins one, and waits where it needs one that has not arrived.
double predicted_seconds(const std::vector<CommRecord>& records, const CommTime& time, double flops_per_second,
                         double flops);

boost::json::object json_of(const StepForecast& forecast);

}  // namespace detail
}  // namespace tessera::nn
