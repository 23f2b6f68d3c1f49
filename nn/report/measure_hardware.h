// measure_hardware: the speeds of a mesh's devices and links, measured, and kept in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "nn/report/step_forecast.h"
#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh.h"

namespace tessera::nn {

// The sizes and rounds of measure_hardware.
struct MeasureOptions {
  DType dtype = float32;    // of the products
  int64_t side = 512;       // of the square matrices that each device multiplies; at least 1
  int64_t bytes = 4 << 20;  // of each device in the larger collectives and in memory; at least 65536
  int64_t num_rounds = 15;  // each measured so often, of which the least counts; at least 1
};

// Measures on the devices of a mesh, all at work at once: matrix products, reading and writing memory (an elementwise
// operation), and along each axis of more than one device all_reduce, all_gather and reduce_scatter of few bytes and of
// many. `links` has a link for each of these axes, the one that predicts the six times best on the whole (by the
// formulas of compare_meshes); `link`, which counts for every other axis, is the slowest of them; `across` names the
// axes along which the mesh's devices are on several machines. `call_seconds` is what a gradient step of many tiny
// layers takes beyond these, by its operations; `overlap` by how much fully sharded layers are faster when their
// weights are gathered ahead, of what that could hide at most (0 in one process, which gathers nothing ahead for its
// own devices). Takes one to two seconds on virtual devices. Between processes all call this at the same place; the
// slowest counts, and all get the same numbers. Errors (invalid_argument): no mesh, an abstract one, options below what
// they may be.
Hardware measure_hardware(const Mesh& mesh, const MeasureOptions& options = {});

// {"flops_per_second": x, "link": {"bytes_per_second": x, "latency": x}, "links": {axis: link},
// "across": [axis], "memory_bytes_per_second": x, "call_seconds": x, "overlap": x}
std::string to_json(const Hardware& hardware);

// That as a file, which is created or replaced; and read again, exactly. Between processes, process 0 saves. Errors
// (invalid_file): the file cannot be written or read, it is malformed, or flops_per_second or link is missing (what
// else is missing is as in Hardware{}); those of compare_meshes for speeds that are not above 0 (invalid_argument).
void save_hardware(const std::filesystem::path& file, const Hardware& hardware);
Hardware load_hardware(const std::filesystem::path& file);

}  // namespace tessera::nn
