// Backpropagation: the gradients of all leaves of a tape, on their way to the parameters that handed them out.
#pragma once

#include <optional>
#include <vector>

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/autodiff/gradient_buckets.h"

namespace tessera::detail {

// Whether an array of a tape is one of its parameters.
bool is_traced(const Array& shadow);
[[noreturn]] void fail_no_gradient();

class Backpropagation {
 public:
  Backpropagation(const std::vector<Array>& shadows, TapeState& tape);

  // The backward pass. Sums over processes begin in it, where nothing that is recorded or asked for prevents them.
  void run(const ArrayImpl& root);

  // The same in the graph, for the gradient of the tape around this one.
  std::vector<Array> finish_recorded();

  // One gradient per shadow, at the parameter's own placement.
  std::vector<Array> finish();

 private:
  // A leaf, and where its gradients stand in the list of all.
  struct LeafRange {
    const ArrayImpl* leaf;
    size_t begin;
  };
  struct Home {
    std::vector<LeafRange> leaves;
    const Type* type = nullptr;  // of the gradient
    bool is_gathered = false;
    size_t first_block = 0, blocks = 0;          // of contributions_
    std::optional<GradientBuckets::Key> bucket;  // in which it is reduced
  };

  const ArrayImpl& parameter(size_t p) const { return *shadows_[p].impl(); }
  void check_parameters() const;
  void add_leaf(size_t p, const ArrayImpl* leaf, const Tensors& tensors);
  void add_late_gradients();

  // Where the gradient of a parameter goes, as far as its leaves tell.
  AxisSet axes_of(size_t p) const;
  const MeshImpl* mesh_of(size_t p) const;
  const Type* type_of(size_t p) const;
  std::optional<GradientBuckets::Key> bucket_of(size_t p) const;

  void plan_chunks();
  void listen();
  void begin_chunk(const GradientBuckets::Key& key, const std::vector<size_t>& parameters);

  void gather_contributions(size_t p);
  Array recorded_gradient(size_t p);
  bool fill_gaps(const LeafRange& range);
  void add_contributions(const Type& gradient, const LeafRange& range, const MeshImpl* mesh, AxisSet axes, int block,
                         Tensors& out) const;
  Array gradient_of(size_t p) const;

  const std::vector<Array>& shadows_;
  TapeState& tape_;
  std::vector<Home> homes_;             // of each shadow
  Tensors leaves_, gradients_;          // of all leaves
  std::vector<Tensors> contributions_;  // of each distinct block of each gradient
  Tensors sums_;
  GradientBuckets buckets_;
  GradientChunks chunks_;
  GradientHooks hooks_;
};

}  // namespace tessera::detail
