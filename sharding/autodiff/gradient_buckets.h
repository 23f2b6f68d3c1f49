// GradientBuckets: reduces all gradients that are summed over the same mesh axes in one collective.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/redistribution/communicate.h"

namespace tessera::detail {

class GradientBuckets {
 public:
  // The mesh axes to reduce over, and the element type in which the gradients cross the devices.
  using Key = std::tuple<const MeshImpl*, AxisSet, DType>;

  // Adds a parameter's gradient: its bytes on one device, its path, its blocks [begin, end) in the list of all blocks.
  void add(const Key& key, int64_t bytes, const Text& path, size_t begin, size_t end);

  // Begins to reduce `blocks`, which stand at `places` in the list of all blocks. Their parameters are added under
  // `key` before reduce(). All processes begin the same blocks in the same order.
  void begin(const Key& key, const std::vector<size_t>& places, const Tensors& blocks);

  // Replaces each block, a sum over this process's devices, by the sum over all devices: one collective per bucket.
  void reduce(Tensors& blocks);

 private:
  struct Entry {
    Text path;
    size_t begin, end;
  };
  struct Bucket {
    int64_t bytes = 0;
    std::vector<Entry> parameters;
  };
  struct Begun {
    std::vector<PendingSum> sums;
    std::vector<size_t> places;  // of their blocks
  };
  static Text paths_of(const Bucket& bucket);
  static Communication said_of(const Key& key, const Bucket& bucket);
  void reduce(const Key& key, Bucket& bucket, Tensors& blocks);

  std::map<Key, Bucket> buckets_;
  std::map<Key, Begun> begun_;
};

// Groups parameters into chunks, each large enough to keep a network busy, whose gradients are reduced together while
// the backward pass still runs. The order of the chunks is fixed before the pass begins, so that all processes agree:
// from the last parameters to the first, as their gradients usually arrive. Gradients that are reduce-scattered by
// block are chunks by block.
class GradientChunks {
 public:
  using Key = GradientBuckets::Key;
  using Begin = std::function<void(const Key& key, const std::vector<size_t>& parameters)>;

  // Call it from the last parameter to the first. `elements`: of the gradient; `tensors`: in how many
  // tensors they arrive.
  void add(size_t parameter, const Key& key, int64_t elements, int64_t tensors);
  // What is added next under this key belongs to another chunk, if there is enough for one.
  void cut(const Key& key);
  // All parameters are added. A rest too small for a chunk (see is_small_sum) joins its key's last chunk, if any.
  void close();
  bool has(size_t parameter) const { return chunk_of_.contains(parameter); }
  // One more tensor of the gradient has arrived. Begins every chunk that is complete and whose turn it is.
  void arrive(size_t parameter, const Begin& begin);
  // Begins all others, complete or not.
  void begin_rest(const Begin& begin);

 private:
  struct Chunk {
    Key key;
    std::vector<size_t> parameters = {};
    int64_t elements = 0, missing = 0;
  };
  static bool is_enough(const Chunk& chunk) { return chunk.elements > max_small_elements; }
  void add_to_last(const Key& key, const Chunk& rest);

  std::vector<Chunk> chunks_, open_;  // in the order in which they begin; those that still grow
  std::map<size_t, size_t> chunk_of_;
  size_t next_ = 0;
};

}  // namespace tessera::detail
