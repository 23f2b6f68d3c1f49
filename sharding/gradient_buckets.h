// GradientBuckets: gradients that are reduced over the same mesh axes, reduced together.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "sharding/array_impl.h"

namespace tessera::detail {

class GradientBuckets {
 public:
  // The mesh axes to reduce over, and the element type in which the gradients cross the devices.
  using Key = std::tuple<const MeshImpl*, Mask, DType>;

  // A parameter's gradient: its bytes on a device, its path, and its blocks [begin, end) among those of all.
  void add(const Key& key, int64_t bytes, const Text& path, size_t begin, size_t end);

  // One collective of each bucket, to ledgers and guards.
  void announce() const;
  // The blocks, which are sums over this process's devices, as sums over all processes.
  void reduce(Tensors& blocks) const;

 private:
  struct Entry {
    Text path;
    size_t begin, end;
  };
  struct Bucket {
    int64_t bytes = 0;
    std::vector<Entry> parameters;
  };
  static Text paths_of(const Bucket& bucket);

  std::map<Key, Bucket> buckets_;
};

}  // namespace tessera::detail
