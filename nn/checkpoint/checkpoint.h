// Checkpoints: trees saved in files that do not depend on the mesh, and restored to any sharding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/checkpoint/folder.h"
#include "nn/tree/tree.h"
#include "nn/tree/tree_scalars.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// A folder of checkpoints has one folder per step, named by its number:
//   100/manifest.json         every tensor's shape, type, axes, file and checksums; the step
//   100/params/               the floating arrays of the model, in Hugging Face's layout:
//                             model-00001-of-00002.safetensors, ..., model.safetensors.index.json
//   100/state/                all other arrays in the same layout: moments, integers, scalars (with the shape (1))
//   100/state.json            numbers (an optimizer's counters), extra, metrics
//   100/commit_success.txt    written last
// Tensors are stored unsharded, and no byte depends on the mesh, the sharding or the number of processes.

// The processes that save together; by default all processes of this program. Each constructs its own Checkpointer and
// calls save, in the same order. All processes must see the same files, which the constructor checks.
// If one process has an error, all processes throw at the same call: that process its own error, the others an error
// that reports it. None waits for the failed process. If a process is killed while others save, their saves end with an
// error, as in a collective.
struct Processes {
  int process_index = 0;
  // 0: process_count() of sharding/runtime/processes.h, with the other fields unset; 1: this process alone.
  int num_processes = 0;
  // Waits until every process has called it, and returns whether all passed true. One thread at a time calls it (the
  // caller's or the saving thread), equally often and in the same order on every process. It must not wait for a
  // process that has ended.
  std::function<bool(bool)> all_ok = {};
};

struct CheckpointOptions {
  RetentionPolicy keep = {};
  int64_t max_file_bytes = int64_t{4} << 30;  // a new file starts before one would exceed this size
  // Maximum number of bytes that are still unwritten when save returns. An update copies an unwritten value before it
  // overwrites it, so this is also the maximum memory that a save takes.
  int64_t max_pending_bytes = int64_t{224} << 20;
  std::string params = "model";  // name of the tree whose floating arrays are stored in params/
  Processes processes = {};
};

// Values saved next to the trees. With several processes, process 0's values are saved.
struct SaveExtra {
  // Maps names to JSON of at most 30 levels: {"loader", loader.state().to_json()}. Restoring gives the same values but
  // not the same text: spaces are lost, and 0.1 becomes 1E-1. 64-bit integers are exact (-0 becomes 0), and all other
  // numbers are doubles. Store larger or more precise numbers as strings.
  std::map<std::string, std::string> extra = {};
  std::map<std::string, double> metrics = {};  // finite; RetentionPolicy::metric names one of them
};

// Saves checkpoints of one run to a folder, in the background.
//   nn::Checkpointer checkpoints("runs/7", {.keep = {.latest = 2, .every = 1000}});
//   checkpoints.save(step, nn::named_state("model", model, "optimizer", optimizer),
//                    {.extra = {{"loader", loader.state().to_json()}}});
//   ...
//   checkpoints.wait();
// A checkpoint is complete or does not exist, even if the program or the machine stops at any time: it is written to a
// temporary folder, synced to the disk, and renamed. Older ones are deleted only after a newer one is complete.
class Checkpointer {
 public:
  // Creates the folder if it does not exist, locks it until destruction, and removes the remains of interrupted saves.
  // Errors
  //   invalid_file: the folder cannot be written to, or another run has locked it
  //   inconsistent: other processes of the program see different checkpoints there
  //   invalid_argument: invalid Processes, RetentionPolicy or sizes
  explicit Checkpointer(std::filesystem::path folder, CheckpointOptions options = {});
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) = delete;
  // Waits for the last save. Throws the save's error if wait() has not thrown it. If another exception is unwinding the
  // stack, prints the error instead.
  ~Checkpointer() noexcept(false);

  // Saves the current values, and returns before they are written; you may change them immediately. First waits for the
  // previous save. If the previous save failed, throws its error and saves nothing of this step; a later call may
  // succeed.
  // Partial sums, for example of an optimizer that accumulates, are reduced. The sums stay in memory until they are
  // written.
  // Errors
  //   invalid_file: a checkpoint of this step exists; a file cannot be written; extra is not JSON
  //   invalid_argument: a step outside [0, 10^15]; an array that differs between replicas or has no data; two arrays
  //     with one path; a name that is not UTF-8; metrics that are not finite, or that lack RetentionPolicy::metric
  //     although RetentionPolicy::best is set
  //   inconsistent: different steps or trees on other processes
  void save(int64_t step, const NamedState& state, const SaveExtra& extra = {});

  // Waits until the last save is complete, and throws its error.
  void wait();

  const std::filesystem::path& folder() const;  // absolute

 private:
  struct Impl;
  Impl& impl() const;

  std::unique_ptr<Impl> impl_;
};

// Saves one checkpoint and waits for it. With several processes, all must call it.
void save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra = {});

struct RestoreOptions {
  // Places lazy initializers by the names of their dimensions, as filter_shard does. They are not run, so only the
  // result takes memory. Arrays that are already placed keep their sharding, on any mesh.
  std::optional<MeshRules> mesh_rules = {};
  bool keep_missing = false;   // keeps arrays and numbers that the checkpoint lacks
  bool ignore_unused = false;  // skips tensors and numbers that the tree lacks
  // Maps a path in the tree to a name in the checkpoint. Two paths may map to one name: both get its values.
  std::function<std::string(const std::string&)> rename = {};
  bool verify = true;  // compares checksums of the bytes that are read
};

struct Restored {
  int64_t step = 0;
  std::map<std::string, std::string> extra;  // the saved values
  std::map<std::string, double> metrics;
  std::vector<std::string> kept, unused;  // paths that keep_missing kept; names that ignore_unused skipped
};

// Sets the arrays and numbers of a tree to the values of a checkpoint: the newest in a folder, or a given one
// (runs/7/100). Each shard is filled with its own bytes of the files. Nothing is gathered, and at most one chunk is in
// memory in addition to the new arrays. Arrays on an abstract mesh are compared and stay without data.
// The tree changes only after everything was read: after an error it is unchanged. Until then, existing arrays stay in
// memory together with the new ones; lazy initializers take none. If an array is placed on devices of several
// processes, all of these must call restore, and either all restore or all throw.
// Errors (invalid_file)
//   no complete checkpoint
//   missing or additional tensors or numbers, or a wrong shape or element type; all in one message
//   a file that is missing, truncated, or damaged
Restored restore(const std::filesystem::path& path, const NamedState& state, const RestoreOptions& options = {});

// Returns a readable description of a checkpoint without reading its arrays: every tensor's path, axes, shape, type,
// bytes and file, then the numbers, extra and metrics. `inspect DIR` prints it. Errors (invalid_file): those of
// read_manifest.
std::string describe_checkpoint(const std::filesystem::path& path);

}  // namespace tessera::nn
