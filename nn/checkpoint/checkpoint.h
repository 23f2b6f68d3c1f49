// Checkpoints: a tree saved whole, in files that know no mesh, and restored to any placement.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/checkpoint/folder.h"
#include "nn/tree/tree.h"
#include "nn/tree/tree_scalars.h"
#include "sharding/placement/layout.h"

namespace tessera::nn {

// A folder of checkpoints holds one folder for each step, named by its number:
//   100/manifest.json         every tensor's shape, type, axes, file and checksums; the step
//   100/params/               the floating arrays of the model, as Hugging Face lays out its weights:
//                             model-00001-of-00002.safetensors, ..., model.safetensors.index.json
//   100/state/                all other arrays, likewise: moments, integers, scalars (with the shape (1))
//   100/state.json            numbers (an optimizer's counts), extra, metrics
//   100/commit_success.txt    written last
// Tensors are whole, and nothing in the bytes depends on mesh, placement or number of processes.

// The processes that save together: unless told otherwise those of this program, however many it was started with. Each
// makes its Checkpointer, and calls save, in the same order. What fails on one process fails on all at the same call,
// with its own error there and one that says so on the others, so that none waits for a process that has given up.
// Every process sees the same files; those that see others are told at the start. A process that is killed or stopped
// while others save ends them, as it does in a collective.
struct Processes {
  int index = 0;
  int count =
      0;  // 0: process_count() of sharding/distributed/processes.h, and nothing else is to be said; 1: this one alone
  // Waits until every process has called it; whether all gave true. Called by one thread at a time, the caller's or the
  // one that saves, as often and in the same order on every process. It must not wait for a process that has ended.
  std::function<bool(bool)> all_ok = {};
};

struct CheckpointOptions {
  Keep keep = {};
  int64_t most_file_bytes = int64_t{4} << 30;  // where more would be in a file, the next begins
  // How much `save` may leave to the background: what is beyond it is written before save returns. Until it is written
  // an update copies what it would overwrite, so this is also the most memory that a save costs.
  int64_t most_pending_bytes = int64_t{224} << 20;
  std::string params = "model";  // the tree whose floating arrays make up params/
  Processes processes = {};
};

// What is saved beside a tree. Of several processes, process 0's is saved.
struct SaveExtra {
  // name -> JSON of at most 30 levels: {"loader", loader.state().to_json()}. It comes back as the same values, not as
  // the same text: spaces go, 0.1 is 1E-1. Whole numbers of 64 bits are exact (-0 is 0), all others the nearest double:
  // what is larger or more precise belongs in a string.
  std::map<std::string, std::string> extra = {};
  std::map<std::string, double> metrics = {};  // finite; Keep::metric names one of them
};

// Saves checkpoints of one run to a folder, in the background.
//   nn::Checkpointer checkpoints("runs/7", {.keep = {.latest = 2, .every = 1000}});
//   checkpoints.save(step, nn::named_state("model", model, "optimizer", optimizer),
//                    {.extra = {{"loader", loader.state().to_json()}}});
//   ...
//   checkpoints.wait();
// A checkpoint is there whole or not at all, whenever the program or the machine stops: it is made aside, brought to
// the disk, and renamed. Older ones go only when a newer one is complete.
class Checkpointer {
 public:
  // Makes the folder if it is not there, takes hold of it until the end, and removes what interrupted saves left.
  // Errors (bad_file): it cannot be written to; another run holds it. (inconsistent): other processes of the program
  // see other checkpoints there. (bad_argument): Processes, a Keep or sizes that cannot be.
  explicit Checkpointer(std::filesystem::path folder, CheckpointOptions options = {});
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) = delete;
  // Waits. An error that nobody has seen is thrown, or printed where another exception is on its way.
  ~Checkpointer() noexcept(false);

  // Takes the values as they are now, and returns before they are written; the values may change at once. Waits for the
  // save before, and throws its error: then nothing of this step is saved, and the next call tries anew.
  // Errors: this step is there already, a file cannot be written (bad_file); an array that is a pending sum, or
  // without data, two of one path, a name that is not UTF-8, metrics that are not finite, or that lack Keep::metric
  // where the best are kept (bad_argument); extra that is no JSON (bad_file); other steps or trees on other processes
  // (inconsistent).
  void save(int64_t step, const NamedState& state, const SaveExtra& extra = {});

  // Until the last save is complete; throws its error.
  void wait();

  const std::filesystem::path& folder() const;  // absolute

 private:
  struct Impl;
  Impl& impl() const;

  std::unique_ptr<Impl> impl_;
};

// Saves one checkpoint and waits for it; of several processes, all do.
void save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra = {});

struct RestoreOptions {
  // Where recipes are placed, by the names of their dims, as filter_shard would: they are never drawn, so no memory is
  // needed but the result's. Arrays that are placed already keep their placement, on whatever mesh it is.
  std::optional<Layout> layout = {};
  bool keep_missing = false;   // what the checkpoint lacks stays as it is in the tree
  bool ignore_unused = false;  // what the tree lacks is not read
  // From a path in the tree to the name in the checkpoint. Two paths may have one name: both get its values.
  std::function<std::string(const std::string&)> rename = {};
  bool verify = true;  // compares the checksums of what is read
};

struct Restored {
  int64_t step = 0;
  std::map<std::string, std::string> extra;  // the values that were saved
  std::map<std::string, double> metrics;
  std::vector<std::string> kept, unused;  // what keep_missing and ignore_unused let pass
};

// Gives the arrays and numbers of a tree the values of a checkpoint: of the newest in a folder, or of one that is named
// (runs/7/100). Each block of each array is filled with its own bytes of the files; nothing is gathered, and beyond the
// new arrays no more than a chunk is held. Arrays on an abstract mesh are compared and left without data.
// The tree is changed only when everything was read: after an error it is what it was. For that, arrays that hold
// values are held beside the new ones until then; recipes cost nothing.
// Where an array is placed on devices of several processes, all of these call restore: all have the same checkpoint
// then, or all an Error.
// Errors (bad_file): no complete checkpoint; tensors or numbers that are missing or too many, other shapes or element
// types, all in one message; a file that is missing, cut off, or whose bytes are not what was saved.
Restored restore(const std::filesystem::path& path, const NamedState& state, const RestoreOptions& options = {});

// What a checkpoint holds, for people, without its arrays: every tensor's path, axes, shape, type, bytes and file, then
// the numbers, extra and metrics. `inspect DIR` prints it. Errors (bad_file): as read_manifest's.
std::string describe_checkpoint(const std::filesystem::path& path);

}  // namespace tessera::nn
