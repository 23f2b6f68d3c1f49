// Checkpoints: trees saved in files that do not depend on the mesh, and restored to any placement.
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

// A folder of checkpoints holds one folder for each step, named by its number:
//   100/manifest.json         every tensor's shape, type, axes, file and checksums; the step
//   100/params/               the floating arrays of the model, as Hugging Face lays out its weights:
//                             model-00001-of-00002.safetensors, ..., model.safetensors.index.json
//   100/state/                all other arrays, likewise: moments, integers, scalars (with the shape (1))
//   100/state.json            numbers (an optimizer's counters), extra, metrics
//   100/commit_success.txt    written last
// Tensors are stored whole, and no byte depends on mesh, placement or number of processes.

// The processes that save together: by default all processes of this program. Each makes its own Checkpointer and calls
// save, in the same order. An error on one process is an error on all at the same call: that process throws its own
// error, the others throw one that says so, and none waits for a process that has given up. All processes must see the
// same files, which the constructor checks. If a process is killed while others save, these end, as in a collective.
struct Processes {
  int process_index = 0;
  // 0: process_count() of sharding/runtime/processes.h, the other fields stay unset; 1: this process alone.
  int num_processes = 0;
  // Waits until every process has called it, and returns whether all passed true. It is called by one thread at a time,
  // the caller's or the one that saves, equally often and in the same order on every process. It must not wait for a
  // process that has ended.
  std::function<bool(bool)> all_ok = {};
};

struct CheckpointOptions {
  RetentionPolicy keep = {};
  int64_t max_file_bytes = int64_t{4} << 30;  // a new file begins before one would get larger
  // How many bytes `save` may leave to the background; it writes all beyond that before it returns. Until a value is
  // written, an update copies it before overwriting it, so this is also the most memory that a save costs.
  int64_t max_pending_bytes = int64_t{224} << 20;
  std::string params = "model";  // the tree whose floating arrays make up params/
  Processes processes = {};
};

// What is saved beside the trees. With several processes, that of process 0 is saved.
struct SaveExtra {
  // name -> JSON of at most 30 levels: {"loader", loader.state().to_json()}. It is restored as the same values, not as
  // the same text: spaces are lost, 0.1 becomes 1E-1. Integers of 64 bits are exact (-0 becomes 0), all other numbers
  // are doubles: store larger or more precise ones as strings.
  std::map<std::string, std::string> extra = {};
  std::map<std::string, double> metrics = {};  // finite; RetentionPolicy::metric names one of them
};

// Saves checkpoints of one run to a folder, in the background.
//   nn::Checkpointer checkpoints("runs/7", {.keep = {.latest = 2, .every = 1000}});
//   checkpoints.save(step, nn::named_state("model", model, "optimizer", optimizer),
//                    {.extra = {{"loader", loader.state().to_json()}}});
//   ...
//   checkpoints.wait();
// A checkpoint is complete or does not exist, whenever the program or the machine stops: it is written to a temporary
// folder, synced to the disk, and renamed. Older ones are deleted only when a newer one is complete.
class Checkpointer {
 public:
  // Makes the folder if it does not exist, locks it until destruction, and removes what interrupted saves left.
  // Errors: the folder cannot be written to, another run has locked it (invalid_file); other processes of the program
  // see other checkpoints there (inconsistent); invalid Processes, RetentionPolicy or sizes (invalid_argument).
  explicit Checkpointer(std::filesystem::path folder, CheckpointOptions options = {});
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) = delete;
  // Waits for the last save. Throws its error if wait() has not, or prints it while another exception unwinds.
  ~Checkpointer() noexcept(false);

  // Saves the values as they are now, and returns before they are written; they may change at once. First waits for the
  // previous save. If that failed, throws its error and saves nothing of this step; a later call may succeed. Pending
  // sums, as an optimizer that accumulates holds them, are summed for it, and the sums are held until they are written.
  // Errors: a checkpoint of this step exists, a file cannot be written, extra is not JSON (invalid_file); a negative
  // step, an array that differs between replicas or has no data, two arrays of one path, a name that is not UTF-8,
  // metrics that are not finite or lack RetentionPolicy::metric although RetentionPolicy::best is set
  // (invalid_argument); other steps or trees on other processes (inconsistent).
  void save(int64_t step, const NamedState& state, const SaveExtra& extra = {});

  // Waits until the last save is complete; throws its error.
  void wait();

  const std::filesystem::path& folder() const;  // absolute

 private:
  struct Impl;
  Impl& impl() const;

  std::unique_ptr<Impl> impl_;
};

// Saves one checkpoint and waits for it. With several processes, all call it.
void save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra = {});

struct RestoreOptions {
  // Where to place recipes, by the names of their dims, as filter_shard would. They are not carried out, so only the
  // result takes memory. Arrays that are placed already keep their placement, on whatever mesh.
  std::optional<MeshRules> mesh_rules = {};
  bool keep_missing = false;   // arrays and numbers that the checkpoint lacks keep their values
  bool ignore_unused = false;  // tensors and numbers that the tree lacks are not read
  // Maps a path in the tree to the name in the checkpoint. Two paths may map to one name: both get its values.
  std::function<std::string(const std::string&)> rename = {};
  bool verify = true;  // compares the checksums of what is read
};

struct Restored {
  int64_t step = 0;
  std::map<std::string, std::string> extra;  // the values that were saved
  std::map<std::string, double> metrics;
  std::vector<std::string> kept, unused;  // paths that keep_missing kept, names that ignore_unused skipped
};

// Sets the arrays and numbers of a tree to the values of a checkpoint: the newest in a folder, or the one that is named
// (runs/7/100). Each shard is filled with its own bytes of the files; nothing is gathered, and beside the new arrays at
// most one chunk is in memory. Arrays on an abstract mesh are compared and left without data.
// The tree is changed only when everything was read: after an error it is unchanged. Until then, arrays that hold
// values stay in memory beside the new ones; recipes cost nothing.
// If an array is placed on devices of several processes, all of these call restore, and all restore or all throw.
// Errors (invalid_file): no complete checkpoint; tensors or numbers that are missing, left over, or of another shape or
// element type, all in one message; a file that is missing, cut off, or damaged.
Restored restore(const std::filesystem::path& path, const NamedState& state, const RestoreOptions& options = {});

// A description of a checkpoint for people, without reading its arrays: every tensor's path, axes, shape, type, bytes
// and file, then the numbers, extra and metrics. `inspect DIR` prints it. Errors (invalid_file): as read_manifest's.
std::string describe_checkpoint(const std::filesystem::path& path);

}  // namespace tessera::nn
