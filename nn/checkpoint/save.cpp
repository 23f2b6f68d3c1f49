// Takes snapshots of arrays, and writes them chunk by chunk with checksums.
#include "nn/checkpoint/save.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "sharding/array/array_impl.h"
#include "sharding/array/host_memory.h"
#include "sharding/array/ownership.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/files/file.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/convert.h"

namespace tessera::nn {

using namespace tessera::detail;

namespace {

constexpr int64_t kFlushBytes = int64_t{8} << 20;

[[noreturn]] void refuse(const std::string& path, std::string_view message) {
  fail(ErrorKind::invalid_argument, "save", "{}: {}", path, message);
}

void check_has_values(const Leaf& leaf) {
  const Type& type = *leaf.value->impl()->type;
  if (type.varying)
    refuse(leaf.path, fmt::format("{} differs between replicas. Reduce it first.", leaf.value->type_string()));
  if (type.mesh && type.mesh->has_no_hardware())
    refuse(leaf.path, fmt::format("{} is on an abstract mesh, which holds no values.", leaf.value->type_string()));
}

// Returns the array; for a partial sum, a reduced copy, because the array itself stays partial.
ArrayPtr values_of(const Leaf& leaf) {
  if (host_tensors(*leaf.value)) return read_host_memory(*leaf.value);
  ArrayImpl& a = materialized(*leaf.value, "save");
  if (!a.type->unreduced) return leaf.value->impl();
  static const Text reason = tessera::detail::lasting_text("a checkpoint stores values, not partial sums");
  const ArrayPtr copy = with_tensors(a, a.local).impl();
  return convert(*copy, copy, at_rest(a.type), {.operation = "save", .where = {}, .reason = reason, .path = {}});
}

// Blocks of an array and their owners: by device in mesh order, or by process for an array without a mesh.
struct Held {
  std::vector<IndexRanges> blocks;
  std::vector<int> owners;
};

// Returns the blocks and their owners. If a mesh has a single process, each of `holders` has an equal mesh, so the
// devices are divided among `holders`.
Held held_of(const ArrayImpl& a, const std::vector<int>& holders) {
  const MeshImpl* mesh = a.type->mesh;
  const auto places = static_cast<int64_t>(mesh ? mesh->devices.size() : holders.size());
  Held held;
  for (int place = 0; place < places; ++place) {
    const bool is_shared_out = !mesh || whole_of(mesh)->processes == 1;
    held.owners.push_back(is_shared_out ? holders[place * holders.size() / places] : mesh->process_of(place));
    int coordinates[max_axes] = {};
    if (mesh) unravel_place(mesh, mesh->all(), place, coordinates);
    held.blocks.push_back(mesh ? block_of(a.type, coordinates) : whole_block(a.type->shape));
  }
  return held;
}

bool contains(const IndexRanges& outer, const IndexRanges& inner) {
  for (size_t d = 0; d < outer.size(); ++d)
    if (inner[d].first < outer[d].first || inner[d].second > outer[d].second) return false;
  return true;
}

// Throws unless the processes that have the values are those that save.
void check_owners(const Leaf& leaf, const MeshImpl* mesh, const Processes& processes) {
  const MeshImpl* whole = whole_of(mesh);
  if (!whole || (whole->processes == 1 && !whole->elsewhere) || whole->members().back() < processes.num_processes)
    return;
  refuse(leaf.path, fmt::format("{} is on devices of {}, {} save{}. Leave Processes as it is, so that all save{}.",
                                leaf.value->type_string(), counted(whole->processes, "process"),
                                counted(processes.num_processes, "process"), processes.num_processes == 1 ? "s" : "",
                                whole->elsewhere ? "" : ", or save gather(x)"));
}

// Returns a part of the array from the memory of a device that has it.
at::Tensor values_in(const ArrayImpl& a, const std::vector<IndexRanges>& blocks, IndexRanges part) {
  const MeshImpl* mesh = a.type->mesh;
  const auto is_here = [&](size_t p) { return !mesh || mesh->process_of(static_cast<int>(p)) == mesh->process; };
  size_t place = 0;
  while (!is_here(place) || !contains(blocks[place], part)) ++place;
  for (size_t d = 0; d < part.size(); ++d) {
    part[d].first -= blocks[place][d].first;
    part[d].second -= blocks[place][d].first;
  }
  Coordinates coordinates(mesh);
  if (mesh) unravel_place(mesh, mesh->all(), static_cast<int>(place), coordinates);
  return cut(a.local[mesh ? ravel(mesh, a.slots, coordinates) : 0].detach(), part);
}

SavedTensor saved_tensor(const Leaf& leaf) {
  SavedTensor saved{
      .name = leaf.path, .dtype = leaf.value->dtype(), .shape = leaf.value->shape(), .axes = std::nullopt, .file = {}};
  if (!leaf.axes || leaf.axes->size() != saved.shape.size()) return saved;
  saved.axes.emplace();
  for (const AxisName& name : *leaf.axes) {
    saved.axes->push_back(name.is_mesh_axis() ? "" : name.name());
    check_name(leaf.path + " axis", saved.axes->back());
  }
  return saved;
}

bool is_below(const std::string& path, const std::string& tree) {
  return path.starts_with(tree) && (path.size() == tree.size() || path[tree.size()] == '.');
}

// Throws if the metric is missing. Otherwise a misspelled name would cause the best checkpoint to be deleted.
void check_metric(const RetentionPolicy& keep, const std::map<std::string, double>& metrics) {
  if (keep.best == 0 || metrics.empty() || metrics.contains(keep.metric)) return;
  std::string given;
  for (const auto& [name, value] : metrics) given += fmt::format("{}\"{}\"", given.empty() ? "" : ", ", name);
  fail(ErrorKind::invalid_argument, "save",
       "keep: the best {} are to be kept by \"{}\", and the metrics of this step are {}. Give it among them, or none.",
       keep.best, keep.metric, given);
}

SavedState saved_state(const NamedState& state, const SaveExtra& extra) {
  SavedState saved{.numbers = {}, .extra = extra.extra, .metrics = extra.metrics};
  for (const auto& [name, value] : extra.metrics)
    if (!std::isfinite(value))
      fail(ErrorKind::invalid_argument, "save", "metric \"{}\": {} given, expected a finite number.", name, value);
  for (const Scalar& number : state.scalars)
    if (!saved.numbers.emplace(number.path, number.to_json()).second)
      refuse(number.path, "two numbers have this path. Give each tree its own name.");
  saved.to_json();  // throws now if an extra is not JSON
  return saved;
}

// Bytes of one chunk that a block has.
struct Overlap {
  int64_t offset;  // in the tensor
  std::span<const std::byte> bytes;
};

// Writes the chunks of one tensor, and returns this process's part of their checksums.
class ChunkWriter {
 public:
  ChunkWriter(const File& file, int64_t offset) : file_(file), offset_(offset) {}

  uint32_t write(const std::vector<Overlap>& overlaps, int64_t begin, int64_t bytes) {
    if (overlaps.size() == 1 && static_cast<int64_t>(overlaps[0].bytes.size()) == bytes)
      return write_whole(overlaps[0].bytes, begin);
    int64_t covered = 0;
    for (const Overlap& overlap : overlaps) covered += static_cast<int64_t>(overlap.bytes.size());
    staging_.resize(static_cast<size_t>(bytes));
    if (covered < bytes) std::memset(staging_.data(), 0, staging_.size());
    for (const auto& [offset, values] : overlaps)
      std::memcpy(staging_.data() + (offset - begin), values.data(), values.size());
    if (covered == bytes) return write_whole(staging_, begin);
    for (const auto& [offset, values] : overlaps) file_.write_at(values, offset_ + offset);
    return crc32c(staging_);
  }

 private:
  uint32_t write_whole(std::span<const std::byte> bytes, int64_t begin) {
    file_.write_at(bytes, offset_ + begin);
    return crc32c(bytes);
  }

  const File& file_;
  int64_t offset_;
  std::vector<std::byte> staging_;
};

int64_t chunk_bytes(int64_t tensor_bytes, size_t chunk) {
  return std::min(kChunkBytes, tensor_bytes - static_cast<int64_t>(chunk) * kChunkBytes);
}

}  // namespace

std::vector<Save::Part> Save::parts_of(const Leaf& leaf, const Processes& processes, const std::vector<int>& holders) {
  const ArrayPtr values = values_of(leaf);
  const ArrayImpl& a = *values;
  const Held held = held_of(a, holders);
  std::vector<Part> parts;
  for (IndexRanges& mine : blocks_to_write(held.blocks, held.owners, processes.process_index)) {
    at::Tensor part = values_in(a, held.blocks, mine);
    parts.push_back({std::move(mine), std::move(part)});
  }
  return parts;
}

Save::Save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra,
           const CheckpointOptions& options)
    : checkpoint_(folder, step), processes_(options.processes), keep_(options.keep), state_(saved_state(state, extra)) {
  check_metric(keep_, extra.metrics);
  manifest_.step = step;
  std::set<std::string> names;
  for (const Leaf& leaf : state.arrays) {
    if (leaf.value->is_absent()) continue;
    if (!names.insert(leaf.path).second) refuse(leaf.path, "two arrays have this path. Give each tree its own name.");
    check_name("array", leaf.path);
    check_has_values(leaf);
    const MeshImpl* mesh = leaf.value->impl()->type->mesh;
    check_owners(leaf, mesh, processes_);
    placements_ += fmt::format("{} on {}\n", leaf.value->type_string(), Mesh(mesh).to_string());
    SavedTensor& saved = manifest_.tensors.emplace_back(saved_tensor(leaf));
    const bool is_weight = is_floating(saved.dtype) && !saved.shape.empty() && is_below(leaf.path, options.params);
    saved.file = is_weight ? "params" : "state";
    saved.checksums.resize(static_cast<size_t>((saved.bytes() + kChunkBytes - 1) / kChunkBytes), 0);
  }
  add_files("params", options.max_file_bytes);
  add_files("state", options.max_file_bytes);
}

void Save::take(const NamedState& state, const WhoHas& who_has) {
  const at::AutoGradMode off(false);
  std::vector<int> everyone(static_cast<size_t>(processes_.num_processes));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (size_t i = 0; i < state.arrays.size(); ++i) {
    if (state.arrays[i].value->is_absent()) continue;
    parts_.push_back(parts_of(state.arrays[i], processes_, who_has.empty() ? everyone : who_has[i]));
    for (const Part& part : parts_.back()) bytes_left_ += static_cast<int64_t>(part.values.nbytes());
  }
}

std::string Save::identity() const {
  const std::string tensors = manifest_.to_json();
  return fmt::format("step {} of {} arrays, of checksum {:08x}, in placements of checksum {:08x}", manifest_.step,
                     manifest_.tensors.size(), crc32c(std::as_bytes(std::span(tensors))),
                     crc32c(std::as_bytes(std::span(placements_))));
}

// Plans files for the tensors whose `file` is still this folder, and lists the work on them.
void Save::add_files(const std::string& folder, int64_t max_file_bytes) {
  std::map<std::string, size_t> numbers;
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    if (manifest_.tensors[i].file != folder) continue;
    entries.push_back(manifest_.tensors[i].entry());
    numbers[manifest_.tensors[i].name] = i;
  }
  for (PlannedFile& plan : plan_files(folder, entries, max_file_bytes)) {
    for (size_t i = 0; i < plan.layout.tensors().size(); ++i) {
      const size_t tensor = numbers.at(plan.layout.tensors()[i].name);
      manifest_.tensors[tensor].file = plan.file;
      work_.push_back({tensor, plans_.size(), plan.layout.offset(i)});
    }
    plans_.push_back(std::move(plan));
  }
}

void Save::stage(const std::function<void()>& f) {
  try {
    together(processes_, checkpoint_.path(), "save", f);
  } catch (...) {
    over_ = std::current_exception();
    files_.clear();
    parts_.clear();
    if (processes_.process_index == 0) checkpoint_.abandon();
    throw;
  }
}

void Save::begin() {
  begun_ = true;
  stage([&] {
    if (processes_.process_index > 0) return;
    const auto any = [&](std::string_view folder) {
      return std::any_of(plans_.begin(), plans_.end(), [&](const auto& plan) { return plan.file.starts_with(folder); });
    };
    checkpoint_.begin(any("params/"), any("state/"));
    for (const auto& [name, layout] : plans_) {
      const File& file = files_.emplace_back(File::create(checkpoint_.path() / name, "save"));
      file.reserve(layout.file_bytes());
      file.write_at(std::as_bytes(std::span(layout.header())), 0);
    }
  });
  stage([&] {
    for (size_t i = files_.size(); i < plans_.size(); ++i)
      files_.push_back(File::modify(checkpoint_.path() / plans_[i].file, "save"));
    flushed_.resize(files_.size(), 0);
  });
}

void Save::write_tensor(const Work& work) {
  SavedTensor& saved = manifest_.tensors[work.tensor];
  const int64_t bytes = saved.bytes();
  std::vector<at::Tensor> held;
  std::vector<ByteRuns> runs;
  for (Part& part : parts_[work.tensor]) {
    bytes_left_ -= static_cast<int64_t>(part.values.nbytes());
    held.push_back(std::exchange(part.values, {}).contiguous().cpu());
    runs.emplace_back(saved.shape, part.block, item_size(saved.dtype));
  }
  ChunkWriter writer(files_[work.file], work.offset);
  std::vector<Overlap> overlaps;
  for (size_t chunk = 0; chunk < saved.checksums.size(); ++chunk) {
    const int64_t begin = static_cast<int64_t>(chunk) * kChunkBytes, size = chunk_bytes(bytes, chunk);
    overlaps.clear();
    for (size_t i = 0; i < runs.size(); ++i)
      runs[i].visit(begin, begin + size, [&](int64_t offset, int64_t in_block, int64_t n) {
        const auto* values = static_cast<const std::byte*>(held[i].const_data_ptr()) + in_block;
        overlaps.push_back({offset, {values, static_cast<size_t>(n)}});
      });
    if (overlaps.empty()) continue;
    saved.checksums[chunk] = writer.write(overlaps, begin, size);
    if (processes_.num_processes > 1) saved.checksums[chunk] ^= crc32c_of_zeros(static_cast<size_t>(size));
    flush_up_to(work.file, work.offset + begin + size);
  }
}

// Starts writing to the disk while the rest is still to be copied to the file.
void Save::flush_up_to(size_t file, int64_t offset) {
  int64_t& flushed = flushed_[file];
  if (offset - flushed < kFlushBytes) return;
  files_[file].flush(flushed, offset - flushed);
  flushed = offset;
}

void Save::write_down_to(int64_t bytes_left) noexcept {
  if (bytes_left_ <= bytes_left) return;
  try {
    const at::AutoGradMode off(false);
    begin();
    while (next_ < work_.size() && bytes_left_ > bytes_left) write_tensor(work_[next_++]);
  } catch (...) {
    error_ = std::current_exception();
  }
}

std::filesystem::path Save::checksums_of(int process) const {
  return checkpoint_.path() / fmt::format("checksums-{}", process);
}

// Writes this process's part of the checksums to a file. The first process combines the files.
void Save::leave_checksums() const {
  const File file = File::create(checksums_of(processes_.process_index), "save");
  int64_t offset = 0;
  for (const SavedTensor& saved : manifest_.tensors) {
    file.write_at(std::as_bytes(std::span(saved.checksums)), offset);
    offset += static_cast<int64_t>(saved.checksums.size() * sizeof(uint32_t));
  }
}

void Save::gather_checksums() {
  for (int process = 1; process < processes_.num_processes; ++process) {
    const File file = File::open(checksums_of(process), "save");
    int64_t offset = 0;
    for (SavedTensor& saved : manifest_.tensors) {
      std::vector<uint32_t> theirs(saved.checksums.size());
      file.read_at(std::as_writable_bytes(std::span(theirs)), offset);
      offset += static_cast<int64_t>(theirs.size() * sizeof(uint32_t));
      for (size_t i = 0; i < theirs.size(); ++i) saved.checksums[i] ^= theirs[i];
    }
  }
  for (SavedTensor& saved : manifest_.tensors)
    for (size_t i = 0; i < saved.checksums.size(); ++i)
      saved.checksums[i] ^= crc32c_of_zeros(static_cast<size_t>(chunk_bytes(saved.bytes(), i)));
  for (int process = 0; process < processes_.num_processes; ++process) remove_all(checksums_of(process), "save");
}

void Save::finish() {
  const at::AutoGradMode off(false);
  if (!begun_) begin();
  if (over_) std::rethrow_exception(over_);
  stage([&] {
    if (error_) std::rethrow_exception(error_);
    while (next_ < work_.size()) write_tensor(work_[next_++]);
    if (processes_.num_processes == 1) return;
    leave_checksums();
    for (const File& file : files_) file.sync();
  });
  stage([&] {
    if (processes_.process_index > 0) return files_.clear();
    if (processes_.num_processes > 1) gather_checksums();
    checkpoint_.commit(manifest_, state_, files_);
    files_.clear();
    try {
      apply_retention(checkpoint_.path().parent_path(), keep_, manifest_.step);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{} (Step {} is complete, older ones should have been deleted.)",
                                            error.what(), manifest_.step));
    }
  });
}

}  // namespace tessera::nn
