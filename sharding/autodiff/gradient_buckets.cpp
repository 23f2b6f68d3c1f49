// Sums buckets of gradients: chunk by chunk as they arrive, or in the order of their first parameters.
#include "sharding/autodiff/gradient_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sharding/array/abstract_tensor.h"

namespace tessera::detail {
namespace {

constexpr int64_t chunk_bytes = int64_t{4} << 20;
// Returns one device's fraction of its process's buffers. A process has buffers for its own devices' sums, for copies,
// and for the data that it receives from other processes and sums. With two processes, each sums in place.
int64_t buffer_bytes(const MeshImpl* mesh, AxisSet axes, int64_t bytes) {
  const int processes = mesh->processes_over(axes), each = mesh->count(axes) / processes;
  const int64_t own = each == 1 ? 0 : bytes;
  const int64_t others = processes == 1 ? 0 : processes == 2 ? bytes + bytes / 2 : 2 * bytes;
  return (own + others) / each;
}
Provenance cause_now() { return {.operation = gradients_operation, .where = {}, .reason = {}, .path = {}}; }

}  // namespace

void GradientBuckets::add(const Key& key, int64_t bytes, const Text& path, size_t begin, size_t end) {
  Bucket& bucket = buckets_[key];
  bucket.bytes += bytes;
  bucket.parameters.push_back({path, begin, end});
}

// Returns "embed.tokens", or "embed.tokens and 28 more".
Text GradientBuckets::paths_of(const Bucket& bucket) {
  const Text& first = bucket.parameters[0].path;
  if (bucket.parameters.size() == 1 || !first) return first;
  return as_text(fmt::format("{} and {} more", *first, bucket.parameters.size() - 1));
}

Communication GradientBuckets::event_of(const Key& key, const Bucket& bucket, const Begun& begun) {
  const auto& [mesh, axes, dtype] = key;
  const Provenance cause{.operation = gradients_operation,
                         .where = {},
                         .reason = as_text(fmt::format("the work is split over {}", mesh->names(axes))),
                         .path = paths_of(bucket)};
  const int64_t bytes = mesh->count(axes) > 1 ? bucket.bytes : 0;
  Communication event =
      detail::event_of(Collective::all_reduce, mesh, axes, bytes, {.cause = cause, .in_backward_pass = true});
  event.operand = as_text(fmt::format("{} {} gradient{}", bucket.parameters.size(), name_of(dtype),
                                      bucket.parameters.size() == 1 ? "" : "s"));
  event.result = as_text("the parameters' shardings");
  if (!begun.sums.empty()) event.began = begun.sums.front().began();
  return event;
}

void GradientBuckets::begin(const Key& key, const std::vector<size_t>& places, const Tensors& blocks) {
  const auto& [mesh, axes, dtype] = key;
  Tensors mine;
  for (const at::Tensor& t : blocks) mine.push_back(in_memory_of(mesh, t));
  Begun& begun = begun_[key];
  begun.sums.emplace_back(mesh, axes, mine, cause_now());
  begun.places.insert(begun.places.end(), places.begin(), places.end());
}

// Orders buckets by their first parameter. Keys hold addresses, so their order would differ between processes.
void GradientBuckets::reduce(Tensors& blocks) {
  std::map<size_t, decltype(buckets_)::value_type*> in_order;
  for (auto& entry : buckets_) in_order[entry.second.parameters[0].begin] = &entry;
  for (auto& [first, entry] : in_order) reduce(entry->first, entry->second, blocks);
}

void GradientBuckets::reduce(const Key& key, Bucket& bucket, Tensors& blocks) {
  const auto& [mesh, axes, dtype] = key;
  Begun& begun = begun_[key];
  std::vector<size_t> places = begun.places;
  Tensors mine;
  if (axes & mesh->crossing()) {
    const std::set<size_t> begun_places(places.begin(), places.end());
    for (const Entry& parameter : bucket.parameters)
      for (size_t b = parameter.begin; b < parameter.end; ++b)
        if (!begun_places.contains(b)) {
          places.push_back(b);
          mine.push_back(in_memory_of(mesh, blocks[b]));
        }
  }
  const at::Tensor copies =
      mesh->abstract ? abstract_tensor({buffer_bytes(mesh, axes, bucket.bytes)}, DType::uint8) : at::Tensor();
  const auto add_sums = [&, mesh = mesh, axes = axes] {
    Tensors sums;
    const auto append = [&](const Tensors& some) { sums.append(some.begin(), some.end()); };
    for (PendingSum& sum : begun.sums) append(sum.finish());
    append(sum_over_processes(mesh, axes, mine, {.operation = gradients_operation, .where = {}}));
    return sums;
  };
  const Tensors sums = communicate([&] { return event_of(key, bucket, begun); }, add_sums);
  for (size_t i = 0; i < places.size(); ++i) blocks[places[i]] = sums[i].to(blocks[places[i]].device());
}

void GradientChunks::add(size_t parameter, const Key& key, int64_t elements, int64_t tensors) {
  auto chunk = std::find_if(open_.begin(), open_.end(), [&](const Chunk& c) { return c.key == key; });
  if (chunk == open_.end()) chunk = open_.insert(chunk, Chunk{key});
  chunk->parameters.push_back(parameter);
  chunk->elements += elements;
  chunk->missing += tensors;
  if (chunk->elements * item_size(std::get<DType>(key)) < chunk_bytes) return;
  chunks_.push_back(*chunk);
  *chunk = Chunk{key};
}

void GradientChunks::cut(const Key& key) {
  for (Chunk& chunk : open_) {
    if (chunk.key != key || !is_enough(chunk)) continue;
    chunks_.push_back(chunk);
    chunk = Chunk{key};
  }
}

void GradientChunks::close() {
  for (const Chunk& rest : open_)
    if (is_enough(rest))
      chunks_.push_back(rest);
    else if (!rest.parameters.empty())
      add_to_last(rest.key, rest);
  for (size_t c = 0; c < chunks_.size(); ++c)
    for (const size_t parameter : chunks_[c].parameters) chunk_of_[parameter] = c;
}

void GradientChunks::add_to_last(const Key& key, const Chunk& rest) {
  const auto last = std::find_if(chunks_.rbegin(), chunks_.rend(), [&](const Chunk& c) { return c.key == key; });
  if (last == chunks_.rend()) return;
  last->parameters.insert(last->parameters.end(), rest.parameters.begin(), rest.parameters.end());
  last->elements += rest.elements;
  last->missing += rest.missing;
}

void GradientChunks::arrive(size_t parameter, const Begin& begin) {
  --chunks_[chunk_of_.at(parameter)].missing;
  for (; next_ < chunks_.size() && chunks_[next_].missing == 0; ++next_)
    begin(chunks_[next_].key, chunks_[next_].parameters);
}

void GradientChunks::begin_rest(const Begin& begin) {
  for (; next_ < chunks_.size(); ++next_) begin(chunks_[next_].key, chunks_[next_].parameters);
}

}  // namespace tessera::detail
