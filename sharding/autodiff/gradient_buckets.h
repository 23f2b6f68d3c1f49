// GradientBuckets: reduces all gradients that are summed over the same mesh axes with one collective.
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
  // The mesh axes to reduce over, and the element type in which gradients are communicated.
  using Key = std::tuple<const MeshImpl*, AxisSet, DType>;

  // Adds a parameter's gradient: its bytes on one device, its path, and its blocks [begin, end) in the list of all
  // blocks.
  void add(const Key& key, int64_t bytes, const Text& path, size_t begin, size_t end);

  // Starts to reduce `blocks`, which have the indices `places` in the list of all blocks. Their parameters are added
  // under `key` before reduce(). All processes start the same blocks in the same order.
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
    std::vector<size_t> places;  // indices of their blocks
  };
  static Text paths_of(const Bucket& bucket);
  static Communication event_of(const Key& key, const Bucket& bucket, const Begun& begun);
  void reduce(const Key& key, Bucket& bucket, Tensors& blocks);

  std::map<Key, Bucket> buckets_;
  std::map<Key, Begun> begun_;
};

// Groups parameters into chunks whose gradients are reduced together while the backward pass still runs. A chunk is
// large enough to keep a network busy. The order of the chunks is fixed before the pass begins, so that all processes
// agree: from the last parameters to the first, as their gradients usually arrive. Gradients that are reduce-scattered
// by block form one chunk per block.
class GradientChunks {
 public:
  using Key = GradientBuckets::Key;
  using Begin = std::function<void(const Key& key, const std::vector<size_t>& parameters)>;

  // Adds a parameter; call it from the last parameter to the first. `elements` and `tensors`: the
  // gradient's number of elements, and of tensors in which it arrives.
  void add(size_t parameter, const Key& key, int64_t elements, int64_t tensors);
  // Starts another chunk for this key, if enough parameters follow for one.
  void cut(const Key& key);
  // Ends adding. Remaining parameters that are too small for a chunk (see is_small_sum) join their key's last chunk, if
  // there is one.
  void close();
  bool has(size_t parameter) const { return chunk_of_.contains(parameter); }
  // Counts one more tensor of the gradient as arrived. Starts every chunk that is complete and next in order.
  void arrive(size_t parameter, const Begin& begin);
  // Starts all other chunks, complete or not.
  void begin_rest(const Begin& begin);

 private:
  struct Chunk {
    Key key;
    std::vector<size_t> parameters = {};
    int64_t elements = 0, missing = 0;
  };
  static bool is_enough(const Chunk& chunk) { return chunk.elements > max_small_elements; }
  void add_to_last(const Key& key, const Chunk& rest);

  std::vector<Chunk> chunks_, open_;  // in the order in which they start; chunks that still grow
  std::map<size_t, size_t> chunk_of_;
  size_t next_ = 0;
};

}  // namespace tessera::detail
