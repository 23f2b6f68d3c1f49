// GradientBuckets: gradients that are reduced over the same mesh axes, reduced together.
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

  // A parameter's gradient: its bytes on a device, its path, and its blocks [begin, end) among those of all.
  void add(const Key& key, int64_t bytes, const Text& path, size_t begin, size_t end);

  // Begins to reduce these blocks, of parameters that are added under this key, and stand at these places among those
  // of all. All processes begin the same ones in the same order.
  void begin(const Key& key, const std::vector<size_t>& places, const Tensors& blocks);

  // The blocks, which are sums over this process's devices, as sums over all: one collective of each bucket.
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
    std::vector<SumWork> sums;
    std::vector<size_t> places;  // of their blocks
  };
  static Text paths_of(const Bucket& bucket);
  static Communication said_of(const Key& key, const Bucket& bucket);
  void reduce(const Key& key, Bucket& bucket, Tensors& blocks);

  std::map<Key, Bucket> buckets_;
  std::map<Key, Begun> begun_;
};

// Which parameters' gradients are reduced together while the backward pass goes on. A chunk is as large as keeps a
// network busy for a while, and its place in the order of all chunks is settled before the pass begins: from the last
// parameters to the first, as their gradients usually come.
class GradientChunks {
 public:
  using Key = GradientBuckets::Key;
  using Begin = std::function<void(const Key& key, const std::vector<size_t>& parameters)>;

  // From the last parameter to the first: how many elements this process has of its gradient, and in how many tensors
  // they come.
  void add(size_t parameter, const Key& key, int64_t elements, int64_t tensors);
  // All are added. What is so little that it is summed in another way (see is_small_sum) is in no chunk.
  void close();
  bool has(size_t parameter) const { return chunk_of_.contains(parameter); }
  // One more tensor is there. Every chunk that is complete, and whose turn it is, is begun.
  void arrive(size_t parameter, const Begin& begin);

 private:
  struct Chunk {
    Key key;
    std::vector<size_t> parameters = {};
    int64_t elements = 0, missing = 0;
  };
  void add_to_last(const Key& key, const Chunk& rest);

  std::vector<Chunk> chunks_, open_;  // in the order in which they begin; and what is not yet one
  std::map<size_t, size_t> chunk_of_;
  size_t next_ = 0;
};

}  // namespace tessera::detail
