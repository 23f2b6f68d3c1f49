// Comparing a tree with a checkpoint, and filling its blocks with their bytes.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "nn/checkpoint.h"
#include "nn/checkpoint_plan.h"
#include "nn/checkpoint_save.h"
#include "nn/filter_shard.h"
#include "sharding/array_impl.h"
#include "sharding/crc32c.h"
#include "sharding/file.h"
#include "sharding/processes.h"
#include "sharding/safetensors.h"
#include "sharding/votes.h"

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
    std::string text = fmt::format("{}: it differs from the tree in {} places.", checkpoint.string(), count);
    add(text, "the checkpoint lacks", missing_);
    add(text, "the tree lacks", unused_);
    add(text, "other shapes or types:", other_);
    text += "\n  Restore into the tree that was saved";
    if (!missing_.empty()) text += ", or keep_missing to leave what the checkpoint lacks as it is";
    if (!unused_.empty()) text += ", or ignore_unused to pass over what the tree lacks";
    fail(ErrorKind::bad_file, "restore", text + ", or rename paths.");
  }

 private:
  static void add(std::string& text, const char* words, const std::vector<std::string>& lines) {
    constexpr size_t shown = 10;
    for (size_t i = 0; i < std::min(shown, lines.size()); ++i) text += fmt::format("\n  {} {}", words, lines[i]);
    if (lines.size() > shown) text += fmt::format("\n  {} {} more", words, lines.size() - shown);
  }

  std::vector<std::string> missing_, unused_, other_;
};

// ---- what is to be filled

// One array of the tree, its future, and where its bytes are.
struct Target {
  const Leaf* leaf;
  const SavedTensor* saved;
  ArrayPtr made = {};
  std::vector<ByteRuns> runs = {};                     // of its distinct blocks
  std::vector<at::Tensor> blocks = {};                 // and their memory, the host's where they lie elsewhere
  std::vector<size_t> slots = {};                      // and which of the array's tensors they are
  std::vector<std::pair<size_t, size_t>> copies = {};  // private replicas: slot to, slot from
  int64_t offset = 0;                                  // in the file
};

at::Tensor empty_block(const Shape& shape, DType dtype, c10::Device device) {
  return at::empty(shape, at::TensorOptions(static_cast<at::ScalarType>(dtype)).device(device));
}

Shape shape_of(const IndexRanges& block) {
  Shape shape;
  for (const auto& [start, stop] : block) shape.push_back(stop - start);
  return shape;
}

const Type* future_type(const Leaf& leaf, const std::optional<Layout>& layout) {
  const Type* type = leaf.value->impl()->type;
  if (leaf.value->is_recipe() && layout)
    return placed_type(type->dtype, type->shape, NamedSharding(layout->mesh(), resolve(leaf, *layout, "restore").spec),
                       "restore");
  if (type->unreduced || type->varying)
    fail(ErrorKind::bad_argument, "restore",
         fmt::format("{}: {} is a pending sum, or differs between replicas. Restore into a parameter.", leaf.path,
                     leaf.value->type_string()));
  return type;
}

void add_facts(const Leaf& leaf, const std::optional<Layout>& layout, ArrayImpl& made) {
  const ArrayImpl& old = *leaf.value->impl();
  if (!leaf.value->is_recipe() || !layout) {
    copy_facts(old, made);
    made.weight = old.weight;
    return;
  }
  made.layout = layout->impl();
  made.weight = is_floating(made.type->dtype);
  made.detail().path = std::make_shared<const std::string>(leaf.path);
  made.detail().placed = std::make_unique<NamedSharding>(layout->mesh(), resolve(leaf, *layout, "restore").spec);
}

// An array like the leaf, placed, with memory that is not filled yet.
void make_room(Target& target, const std::optional<Layout>& layout) {
  const Type* type = future_type(*target.leaf, layout);
  const MeshImpl* mesh = type->mesh;
  const int slots = mesh ? mesh->slots(type->slots) : 1;
  std::map<IndexRanges, size_t> first;
  Tensors local;
  for (int slot = 0; slot < slots; ++slot) {
    Coordinates coordinates(mesh);
    if (mesh) unravel(mesh, type->slots, slot, coordinates);
    const IndexRanges block = mesh ? block_of(type, coordinates) : whole_block(type->shape);
    local.push_back(empty_block(shape_of(block), type->dtype, mesh ? mesh->device : c10::Device(at::kCPU)));
    const auto [same, fresh] = first.emplace(block, slot);
    if (!fresh) {
      target.copies.emplace_back(slot, same->second);
      continue;
    }
    const bool is_host = local.back().is_cpu();
    target.blocks.push_back(is_host ? local.back() : empty_block(shape_of(block), type->dtype, at::kCPU));
    target.slots.push_back(static_cast<size_t>(slot));
    target.runs.emplace_back(type->shape, block, item_size(type->dtype));
  }
  target.made = make_array(type, std::move(local));
  add_facts(*target.leaf, layout, *target.made);
}

bool has_no_data(const Leaf& leaf, const std::optional<Layout>& layout) {
  const MeshImpl* mesh = leaf.value->impl()->type->mesh;
  if (leaf.value->is_recipe() && layout) mesh = layout->mesh().impl();
  return mesh && mesh->abstract;
}

// ---- the files

// A file, open, whose header says what the manifest says.
class TensorFile {
 public:
  explicit TensorFile(const fs::path& path) : header_(SafetensorsFile::open(path)), file_(File::open(path, "restore")) {
    uint64_t length = 0;
    file_.read_at(std::as_writable_bytes(std::span(&length, 1)), 0);
    data_ = static_cast<int64_t>(sizeof length + length);
  }

  const File& file() const { return file_; }

  int64_t offset(const SavedTensor& saved) const {
    const TensorEntry entry = saved.entry();
    if (!header_.contains(entry.name) || header_.info(entry.name).dtype != entry.dtype ||
        header_.info(entry.name).shape != entry.shape)
      fail(
          ErrorKind::bad_file, "restore",
          fmt::format("{}: it does not hold {} as {} {}, as manifest.json says. Was the file replaced? Restore another "
                      "checkpoint.",
                      file_.path().string(), entry.name, name_of(entry.dtype), to_string(entry.shape)));
    return data_ + header_.info(entry.name).begin;
  }

 private:
  SafetensorsFile header_;
  File file_;
  int64_t data_;
};

// What a chunk holds of some block.
struct Overlap {
  int64_t offset;  // in the tensor
  std::span<std::byte> bytes;
};

class ChunkReader {
 public:
  explicit ChunkReader(bool verify) : verify_(verify) {}

  void fill(Target& target, const File& file) {
    const int64_t bytes = target.saved->bytes();
    for (size_t chunk = 0; chunk < target.saved->checksums.size(); ++chunk) {
      const int64_t begin = static_cast<int64_t>(chunk) * kChunkBytes, end = std::min(bytes, begin + kChunkBytes);
      overlaps_.clear();
      for (size_t i = 0; i < target.runs.size(); ++i) {
        auto* memory = static_cast<std::byte*>(target.blocks[i].mutable_data_ptr());
        target.runs[i].visit(begin, end, [&](int64_t offset, int64_t in_block, int64_t n) {
          overlaps_.push_back({offset, {memory + in_block, static_cast<size_t>(n)}});
        });
      }
      if (!overlaps_.empty()) read(target, file, chunk, begin, end);
    }
    for (size_t i = 0; i < target.blocks.size(); ++i)
      if (at::Tensor& own = target.made->local[target.slots[i]]; !own.is_same(target.blocks[i]))
        own.copy_(target.blocks[i]);
    for (const auto& [to, from] : target.copies) target.made->local[to].copy_(target.made->local[from]);
  }

 private:
  void read(const Target& target, const File& file, size_t chunk, int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(end - begin);
    if (overlaps_.size() == 1 && overlaps_[0].bytes.size() == size) {
      file.read_at(overlaps_[0].bytes, target.offset + begin);
      return check(target, chunk, overlaps_[0].bytes);
    }
    staging_.resize(size);
    const std::span<std::byte> whole(staging_.data(), size);
    file.read_at(whole, target.offset + begin);
    check(target, chunk, whole);
    for (const auto& [offset, bytes] : overlaps_)
      std::memcpy(bytes.data(), whole.data() + (offset - begin), bytes.size());
  }

  void check(const Target& target, size_t chunk, std::span<const std::byte> bytes) const {
    if (!verify_ || crc32c(bytes) == target.saved->checksums[chunk]) return;
    fail(ErrorKind::bad_file, "restore",
         fmt::format("{}: the {} bytes from {} on in {} are not those that were saved: their checksum differs, so the "
                     "file is damaged. Restore another checkpoint.",
                     target.saved->name, bytes.size(), chunk * kChunkBytes, target.saved->file));
  }

  bool verify_;
  std::vector<std::byte> staging_;
  std::vector<Overlap> overlaps_;
};

// ---- the whole

class Restore {
 public:
  Restore(const fs::path& path, const NamedState& state, const RestoreOptions& options)
      : checkpoint_(find_checkpoint(path)),
        options_(options),
        manifest_(read_manifest(checkpoint_)),
        saved_(read_state(checkpoint_)) {
    match_arrays(state.arrays);
    match_numbers(state.numbers);
    differences_.refuse_any(checkpoint_);
  }

  // Which checkpoint this is: step 100, of checksum 1b2c3d4e
  std::string identity() const {
    const std::string mark = commit_mark(manifest_.to_json(), saved_.to_json());
    return fmt::format("step {}, of checksum {:08x}", manifest_.step, crc32c(std::as_bytes(std::span(mark))));
  }

  // All that may fail. Of the tree only numbers are changed, and these only if all can be.
  void prepare() {
    read_arrays();
    set_numbers();
  }
  void undo() {
    for (size_t i = 0; i < numbers_before_.size(); ++i) numbers_[i].first.set_json(numbers_before_[i]);
  }
  Restored finish() {
    for (const Target& target : targets_)
      if (target.made) *target.leaf->value = Array(target.made);
    return {manifest_.step, saved_.extra, saved_.metrics, kept_, unused_};
  }

 private:
  std::string name_of_path(const std::string& path) const { return options_.rename ? options_.rename(path) : path; }

  void miss(const std::string& name) {
    if (options_.keep_missing)
      kept_.push_back(name);
    else
      differences_.missing(name);
  }
  void pass_over(const std::string& name) {
    if (options_.ignore_unused)
      unused_.push_back(name);
    else
      differences_.unused(name);
  }

  void match_arrays(const Leaves& arrays) {
    std::map<std::string, const SavedTensor*> there;
    std::set<std::string> used;
    for (const SavedTensor& saved : manifest_.tensors) there.emplace(saved.name, &saved);
    for (const Leaf& leaf : arrays) {
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
      targets_.push_back({&leaf, &saved});
    }
    for (const auto& [name, saved] : there)
      if (!used.contains(name)) pass_over(name);
  }

  void match_numbers(const Numbers& numbers) {
    std::set<std::string> used;
    for (const Number& number : numbers) {
      const auto found = saved_.numbers.find(name_of_path(number.path));
      if (found == saved_.numbers.end()) {
        miss(number.path);
        continue;
      }
      numbers_.emplace_back(number, found->second);
      used.insert(found->first);
    }
    for (const auto& [name, value] : saved_.numbers)
      if (!used.contains(name)) pass_over(name);
  }

  void read_arrays() {
    const at::AutoGradMode off(false);
    std::map<std::string, TensorFile> files;  // all are open before any is read
    std::erase_if(targets_, [&](const Target& target) { return has_no_data(*target.leaf, options_.layout); });
    for (const Target& target : targets_)
      if (!files.contains(target.saved->file))
        files.emplace(target.saved->file, TensorFile(checkpoint_ / target.saved->file));
    for (Target& target : targets_) target.offset = files.at(target.saved->file).offset(*target.saved);
    ChunkReader reader(options_.verify);
    for (Target& target : targets_) {
      make_room(target, options_.layout);
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
  Differences differences_;
  std::vector<Target> targets_;
  std::vector<std::pair<Number, std::string>> numbers_;
  std::vector<std::string> numbers_before_;
  std::vector<std::string> kept_, unused_;
};

// ---- several processes

bool is_of_several(const MeshImpl* mesh) { return mesh && mesh->processes > 1; }

bool is_of_several(const Leaf& leaf, const std::optional<Layout>& layout) {
  if (leaf.value->is_absent()) return false;
  return is_of_several(leaf.value->impl()->type->mesh) ||
         (layout && leaf.value->is_recipe() && is_of_several(layout->mesh().impl()));
}

// f here, then the word of all; the error of f, or one that says that another process has one.
void in_step(Votes& votes, const fs::path& path, const std::function<void()>& f) {
  together({.index = process_index(), .count = process_count(), .all_ok = [&](bool ok) { return votes.all(ok); }}, path,
           "restore", f);
}

Restored restore_together(const fs::path& path, const NamedState& state, const RestoreOptions& options) {
  Votes votes("restore", path.string());
  std::optional<Restore> restore;
  in_step(votes, path, [&] { restore.emplace(path, state, options); });
  votes.check_same(restore->identity(), "Give all processes one folder, on a filesystem that they share.");
  bool prepared = false;
  try {
    in_step(votes, path, [&] {
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
  const auto is_shared = [&](const Leaf& leaf) { return is_of_several(leaf, options.layout); };
  if (std::any_of(state.arrays.begin(), state.arrays.end(), is_shared)) return restore_together(path, state, options);
  Restore restore(path, state, options);
  restore.prepare();
  return restore.finish();
}

}  // namespace tessera::nn
