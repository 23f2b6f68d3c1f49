// Compares a tree with a checkpoint, and fills its blocks with the checkpoint's bytes.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "nn/checkpoint/checkpoint.h"
#include "nn/checkpoint/read.h"
#include "nn/checkpoint/save.h"
#include "nn/placement/paths.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/host_memory.h"
#include "sharding/base/table.h"
#include "sharding/files/file.h"

namespace tessera::nn {

using namespace tessera::detail;

namespace {

namespace fs = std::filesystem;

// ---- the difference between a tree and a checkpoint

class Differences {
 public:
  void missing(const std::string& name) { missing_.push_back(name); }
  void unused(const std::string& name) { unused_.push_back(name); }
  void other(std::string line) { other_.push_back(std::move(line)); }

  void refuse_any(const fs::path& checkpoint) const {
    const size_t count = missing_.size() + unused_.size() + other_.size();
    if (count == 0) return;
    std::vector<std::string> lines;
    add(lines, "the checkpoint lacks", missing_);
    add(lines, "the tree lacks", unused_);
    add(lines, "other shapes or types:", other_);
    std::string& advice = lines.emplace_back("Restore into the tree that was saved");
    if (!missing_.empty()) advice += ", or keep_missing to leave what the checkpoint lacks as it is";
    if (!unused_.empty()) advice += ", or ignore_unused to skip what the tree lacks";
    advice += ", or rename paths.";
    fail_lines(ErrorKind::invalid_file, "restore",
               fmt::format("{}: it differs from the tree in {}.", checkpoint.string(),
                           counted(static_cast<int64_t>(count), "place")),
               lines);
  }

 private:
  static void add(std::vector<std::string>& lines, const char* words, const std::vector<std::string>& names) {
    constexpr size_t shown = 10;
    for (size_t i = 0; i < std::min(shown, names.size()); ++i) lines.push_back(fmt::format("{} {}", words, names[i]));
    if (names.size() > shown) lines.push_back(fmt::format("{} {} more", words, names.size() - shown));
  }

  std::vector<std::string> missing_, unused_, other_;
};

bool has_no_data(const RestoreTarget& target) {
  const Array& x = *target.leaf->value;
  const MeshImpl* mesh = x.is_lazy() && target.mesh_rules ? target.mesh_rules->mesh().impl() : x.impl()->type->mesh;
  return mesh && mesh->has_no_hardware();
}

// ---- one restore

// Replaces x by `made`, whose tensors are in host memory if x is.
void put(Array& x, const Array& made) { x = host_tensors(x) ? in_host_memory(made) : made; }

class Restore {
 public:
  Restore(const fs::path& path, const NamedState& state, const RestoreOptions& options)
      : checkpoint_(find_checkpoint(path)),
        options_(options),
        manifest_(read_manifest(checkpoint_)),
        saved_(read_state(checkpoint_)),
        restored_{.step = manifest_.step, .extra = saved_.extra, .metrics = saved_.metrics, .kept = {}, .unused = {}} {
    match_arrays(state.arrays);
    match_numbers(state.scalars);
    differences_.refuse_any(checkpoint_);
  }

  // Identifies the checkpoint: step 100, of checksum 1b2c3d4e
  std::string identity() const {
    const std::string mark = commit_mark(manifest_.to_json(), saved_.to_json());
    return fmt::format("step {}, of checksum {:08x}", manifest_.step, crc32c(std::as_bytes(std::span(mark))));
  }

  // Runs everything that may fail. Changes only numbers of the tree, and only if all of them can be set.
  void prepare() {
    read_arrays();
    set_numbers();
  }
  void undo() {
    for (size_t i = 0; i < numbers_before_.size(); ++i) numbers_[i].first.set_json(numbers_before_[i]);
  }
  Restored finish() {
    for (const RestoreTarget& target : targets_)
      if (target.made) put(*target.leaf->value, Array(target.made));
    return std::move(restored_);
  }

 private:
  std::string name_of_path(const std::string& path) const { return options_.rename ? options_.rename(path) : path; }

  void miss(const std::string& name) {
    if (options_.keep_missing)
      restored_.kept.push_back(name);
    else
      differences_.missing(name);
  }
  void skip(const std::string& name) {
    if (options_.ignore_unused)
      restored_.unused.push_back(name);
    else
      differences_.unused(name);
  }

  void match_arrays(const Leaves& arrays) {
    std::map<std::string, const SavedTensor*> there;
    std::set<std::string> used;
    for (const SavedTensor& saved : manifest_.tensors) there.emplace(saved.name, &saved);
    std::vector<MeshRules> leaf_rules;
    if (options_.mesh_rules) leaf_rules = detail::stage_mesh_rules(arrays, *options_.mesh_rules, "restore");
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Leaf& leaf = arrays[i];
      if (leaf.value->is_absent()) continue;
      const auto found = there.find(name_of_path(leaf.path));
      if (found == there.end()) {
        miss(leaf.path);
        continue;
      }
      const SavedTensor& saved = *found->second;
      used.insert(saved.name);
      if (saved.shape != leaf.value->shape() || saved.dtype != leaf.value->dtype())
        differences_.other(fmt::format("{} is {} {} in the checkpoint, {} {} in the tree", leaf.path,
                                       name_of(saved.dtype), to_string(saved.shape), name_of(leaf.value->dtype()),
                                       to_string(leaf.value->shape())));
      targets_.push_back({&leaf, &saved, leaf_rules.empty() ? std::nullopt : std::optional(leaf_rules[i])});
    }
    for (const auto& [name, saved] : there)
      if (!used.contains(name)) skip(name);
  }

  void match_numbers(const Scalars& numbers) {
    std::set<std::string> used;
    for (const Scalar& number : numbers) {
      const auto found = saved_.numbers.find(name_of_path(number.path));
      if (found == saved_.numbers.end()) {
        miss(number.path);
        continue;
      }
      numbers_.emplace_back(number, found->second);
      used.insert(found->first);
    }
    for (const auto& [name, value] : saved_.numbers)
      if (!used.contains(name)) skip(name);
  }

  void read_arrays() {
    const at::AutoGradMode off(false);
    std::map<std::string, TensorFile> files;  // opens all files before reading any
    std::erase_if(targets_, has_no_data);
    for (const RestoreTarget& target : targets_)
      if (!files.contains(target.saved->file))
        files.emplace(target.saved->file, TensorFile(checkpoint_ / target.saved->file));
    for (RestoreTarget& target : targets_) target.offset = files.at(target.saved->file).offset(*target.saved);
    ChunkReader reader(options_.verify);
    for (RestoreTarget& target : targets_) {
      allocate(target);
      reader.fill(target, files.at(target.saved->file).file());
      target.blocks.clear();
    }
  }

  void set_numbers() {
    try {
      for (const auto& [number, text] : numbers_) {
        numbers_before_.push_back(number.to_json());
        number.set_json(text);
      }
    } catch (...) {
      undo();
      throw;
    }
  }

  fs::path checkpoint_;
  const RestoreOptions& options_;
  Manifest manifest_;
  SavedState saved_;
  Restored restored_;
  Differences differences_;
  std::vector<RestoreTarget> targets_;
  std::vector<std::pair<Scalar, std::string>> numbers_;
  std::vector<std::string> numbers_before_;
};

// ---- several processes

Restored restore_together(const fs::path& path, const NamedState& state, const RestoreOptions& options) {
  const auto votes = std::make_shared<Votes>("restore", path.string());
  const Processes processes = voting_by(votes);
  std::optional<Restore> restore;
  std::string identity;
  together(processes, path, "restore", [&] { identity = restore.emplace(path, state, options).identity(); });
  votes->check_same(identity, "Give all processes one folder, on a filesystem that they share.");
  bool prepared = false;
  try {
    together(processes, path, "restore", [&] {
      restore->prepare();
      prepared = true;
    });
  } catch (...) {
    if (prepared) restore->undo();
    throw;
  }
  return restore->finish();
}

}  // namespace

Restored restore(const fs::path& path, const NamedState& state, const RestoreOptions& options) {
  const auto is_shared = [&](const Leaf& leaf) { return is_of_several(leaf, options.mesh_rules); };
  if (std::any_of(state.arrays.begin(), state.arrays.end(), is_shared)) return restore_together(path, state, options);
  Restore restore(path, state, options);
  restore.prepare();
  return restore.finish();
}

}  // namespace tessera::nn
