// Allocates blocks like a tree's, and fills them with the bytes of a checkpoint's files.
#include "nn/checkpoint/read.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "nn/placement/filter_shard.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/host_memory.h"
#include "sharding/array/padding.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"

namespace tessera::nn {

using namespace tessera::detail;

namespace {

at::Tensor empty_block(const Shape& shape, DType dtype, c10::Device device) {
  return at::empty(shape, at::TensorOptions(static_cast<at::ScalarType>(dtype)).device(device));
}

const Type* future_type(const Leaf& leaf, const std::optional<MeshRules>& mesh_rules) {
  const Type* type = leaf.value->impl()->type;
  if (leaf.value->is_lazy() && mesh_rules)
    return placed_type(type->dtype, type->shape,
                       NamedSharding(mesh_rules->mesh(), resolve(leaf, *mesh_rules, "restore").spec), "restore");
  if (type->varying)
    fail(ErrorKind::invalid_argument, "restore", "{}: {} differs between replicas. Restore into a parameter.",
         leaf.path, leaf.value->type_string());
  return at_rest(type);
}

void add_facts(const Leaf& leaf, const std::optional<MeshRules>& mesh_rules, ArrayImpl& made) {
  const ArrayImpl& old = *leaf.value->impl();
  if (!leaf.value->is_lazy() || !mesh_rules) {
    copy_facts(old, made);
    if (made.type != old.type && made.details) made.details->placed = nullptr;  // it describes a partial sum
    made.weight = old.weight;
    return;
  }
  made.mesh_rules = mesh_rules->impl();
  made.weight = is_floating(made.type->dtype);
  made.detail().path = tessera::detail::as_text(leaf.path);
  made.detail().placed =
      std::make_unique<NamedSharding>(mesh_rules->mesh(), resolve(leaf, *mesh_rules, "restore").spec);
}

}  // namespace

void allocate(RestoreTarget& target) {
  const Type* type = future_type(*target.leaf, target.mesh_rules);
  const MeshImpl* mesh = type->mesh;
  const int slots = !mesh ? 1 : mesh->elsewhere ? 0 : mesh->slots(type->slots);
  std::map<IndexRanges, size_t> first;
  Tensors local;
  for (int slot = 0; slot < slots; ++slot) {
    Coordinates coordinates(mesh);
    if (mesh) unravel(mesh, type->slots, slot, coordinates);
    const IndexRanges block = mesh ? block_of(type, coordinates) : whole_block(type->shape);
    local.push_back(host_tensors(*target.leaf->value)
                        ? pinned_memory(type->local, scalar_type(type->dtype))
                        : empty_block(type->local, type->dtype, mesh ? mesh->device : c10::Device(at::kCPU)));
    const bool has_padding = sizes_of(block) != type->local;
    if (has_padding) local.back().zero_();
    const auto [same, fresh] = first.emplace(block, slot);
    if (!fresh) {
      target.copies.emplace_back(slot, same->second);
      continue;
    }
    const bool is_filled = local.back().is_cpu() && !has_padding;
    target.blocks.push_back(is_filled ? local.back() : empty_block(sizes_of(block), type->dtype, at::kCPU));
    target.slots.push_back(static_cast<size_t>(slot));
    target.runs.emplace_back(type->shape, block, item_size(type->dtype));
  }
  if (slots == 0) local.push_back(tessera::detail::abstract_block(type));
  target.made = make_array(type, std::move(local));
  add_facts(*target.leaf, target.mesh_rules, *target.made);
}

TensorFile::TensorFile(const std::filesystem::path& path)
    : file_(File::open(path, "restore")), header_(SafetensorsFile::of(file_)) {}

int64_t TensorFile::offset(const SavedTensor& saved) const {
  const TensorEntry entry = saved.entry();
  if (!header_.contains(entry.name) || header_.info(entry.name).dtype != entry.dtype ||
      header_.info(entry.name).shape != entry.shape)
    fail(ErrorKind::invalid_file, "restore",
         "{}: it does not hold {} as {} {}, as manifest.json declares. Was the file replaced? Restore another "
         "checkpoint.",
         file_.path().string(), entry.name, name_of(entry.dtype), to_string(entry.shape));
  return header_.data_offset() + header_.info(entry.name).begin;
}

void ChunkReader::fill(RestoreTarget& target, const File& file) {
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
    if (const at::Tensor& own = target.made->local[target.slots[i]]; !own.is_same(target.blocks[i]))
      without_padding(own, whole_block(target.blocks[i].sizes().vec())).copy_(target.blocks[i]);
  for (const auto& [to, from] : target.copies) target.made->local[to].copy_(target.made->local[from]);
}

void ChunkReader::read(const RestoreTarget& target, const File& file, size_t chunk, int64_t begin, int64_t end) {
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

void ChunkReader::check(const RestoreTarget& target, size_t chunk, std::span<const std::byte> bytes) const {
  if (!verify_ || crc32c(bytes) == target.saved->checksums[chunk]) return;
  fail(ErrorKind::invalid_file, "restore",
       "{}: the {} bytes from {} on in {} are not those that were saved: their checksum differs, so the file is "
       "damaged. Restore another checkpoint.",
       target.saved->name, bytes.size(), chunk * kChunkBytes, target.saved->file);
}

}  // namespace tessera::nn
