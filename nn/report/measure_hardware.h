// measure_hardware: measures the speeds of a mesh's devices and links, which you can save to a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "nn/report/step_forecast.h"
#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh.h"

namespace tessera::nn {

// Sizes and rounds of measure_hardware.
struct MeasureOptions {
  DType dtype = float32;    // element type of the matrix products
  int64_t side = 512;       // size of the square matrices that each device multiplies; at least 1
  int64_t bytes = 4 << 20;  // per device, in the larger collectives and in memory; at least 65536
  int64_t num_rounds = 15;  // repetitions of each measurement, of which the fastest counts; at least 1
};

// Measures the speeds of a mesh's devices and links while all devices work concurrently. It takes one to two seconds on
// virtual devices. With several processes, all must call it together. The slowest process determines each number, and
// all processes get the same numbers.
// Measures matrix products and reading and writing memory (an elementwise operation). Along each axis of more than one
// device, also measures all_reduce, all_gather and reduce_scatter of few and of many bytes.
//   links         per axis: bandwidth and latency, fitted so that the formulas of compare_meshes reproduce the measured
//                 total time of the three collectives, for few and for many bytes
//   link          the slowest of these links, used for every other axis
//   across        the axes along which the mesh's devices are on several machines
//   call_seconds  overhead per operation: measured minus predicted time of a gradient step of many tiny layers
//   overlap       time saved by prefetching fully sharded weights, divided by the largest possible saving; 0 with one
//                 process, because a process prefetches nothing for its own devices
// Errors (invalid_argument): no mesh, an abstract one, or options out of range.
Hardware measure_hardware(const Mesh& mesh, const MeasureOptions& options = {});

// Returns {"flops_per_second": x, "link": {"bytes_per_second": x, "latency": x}, "links": {axis: link}, "across":
// [axis], "memory_bytes_per_second": x, "call_seconds": x, "overlap": x}
std::string to_json(const Hardware& hardware);

// Save the JSON to a file, which is created or replaced, and load it again exactly. With several processes, process 0
// saves.
// Errors
//   invalid_file: the file cannot be written or read, is malformed, or lacks flops_per_second or link (other missing
//     keys have the defaults of Hardware{})
//   invalid_argument: a speed that is not above 0, as in compare_meshes
void save_hardware(const std::filesystem::path& file, const Hardware& hardware);
Hardware load_hardware(const std::filesystem::path& file);

}  // namespace tessera::nn
