// Backpropagation: turns the gradients of a tape's leaves into one reduced gradient per parameter.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/autodiff/gradient_buckets.h"
#include "sharding/autodiff/weights/weight_policy.h"

namespace tessera::detail {

// Returns true if a tape records this shadow: false for an absent parameter and one that is not floating.
bool is_traced(const Array& shadow);
[[noreturn]] void fail_no_gradient();

class Backpropagation {
 public:
  // `weights` is null in a nested tape.
  Backpropagation(const std::vector<Array>& shadows, TapeState& tape, WeightPolicy* weights);

  // Runs the backward pass. Sums over processes start during it, except in a nested tape, under remat or a guard.
  void run(const ArrayImpl& root);

  // Like finish(), recorded in the autograd graph for an outer tape that differentiates the gradients.
  std::vector<Array> finish_recorded();

  // Returns one gradient per shadow, with the parameter's own sharding.
  std::vector<Array> finish();

 private:
  // A leaf and its gradients: in gradients_ from index `begin` on, or those that arrived late.
  struct LeafRange {
    const ArrayImpl* leaf;
    size_t begin = 0;
    Tensors late = {};
  };
  struct ParameterGradient {
    std::vector<LeafRange> leaves;
    const Type* type = nullptr;  // type of the gradient
    bool is_gathered = false;
    size_t first_block = 0, blocks = 0;          // its range in contributions_
    std::optional<GradientBuckets::Key> bucket;  // the bucket that reduces the gradient
  };

  const ArrayImpl& parameter(size_t p) const { return *shadows_[p].impl(); }
  void check_parameters() const;
  void add_leaf(size_t p, const ArrayImpl* leaf, const Tensors& tensors);
  std::span<at::Tensor> gradients_of(LeafRange& range);
  // Adds the gradients of remat's second runs and of gathered weights after they have arrived.
  void add_late_gradients();
  bool has_gradient() const;

  // These return, from the leaves of parameter p: the mesh axes over which its gradient is reduced, and the gradient's
  // mesh, type and bucket.
  AxisSet axes_of(size_t p) const;
  const MeshImpl* mesh_of(size_t p) const;
  const Type* type_of(size_t p) const;
  GradientBuckets::Key key_of(size_t p) const;
  std::optional<GradientBuckets::Key> bucket_of(size_t p) const;
  bool is_cut() const { return !tape_.options.shard_gradients_over.empty(); }

  void plan_chunks();
  bool begins_early() const;
  // Returns true for a parameter on the whole mesh that stages read: no process has all of its gradient.
  bool is_shared_by_stages(AxisSet axes, const MeshImpl* mesh) const;
  bool comes_late(size_t p) const;
  std::optional<int64_t> arrivals_of(size_t p) const;
  void listen();
  void begin_chunk(const GradientBuckets::Key& key, const std::vector<size_t>& parameters);

  // Implement GradientOptions::shard_gradients_over: scatter starts the reduce-scatter of these parameters' summed
  // contributions; finish_scattered returns the results of all.
  void scatter(const std::vector<size_t>& parameters);
  std::vector<Array> finish_scattered();
  const Type* cut_type_of(size_t p) const;

  void gather_contributions(size_t p);
  Array recorded_gradient(size_t p);
  bool fill_gaps(LeafRange& range);
  void add_contributions(const Type& gradient, LeafRange& range, const MeshImpl* mesh, AxisSet axes, int block,
                         Tensors& out);
  Tensors tensors_of(size_t p) const;
  Array gradient_of(size_t p, const Type* type, Tensors local) const;

  const std::vector<Array>& shadows_;
  TapeState& tape_;
  ReduceScatterBatcher* const scatters_;  // null in a nested tape
  std::vector<ParameterGradient> targets_;  // one per shadow
  std::unordered_map<const ArrayImpl*, size_t> place_of_;
  Tensors leaves_, gradients_;  // the local tensors of all leaves, and their gradients
  struct Scattered {
    std::vector<size_t> parameters;
    Transfer transfer;
  };

  std::vector<Tensors> contributions_;  // for each distinct block of each gradient: the tensors to add
  Tensors sums_;
  GradientBuckets buckets_;
  GradientChunks chunks_;
  std::vector<Scattered> scattered_;
  GradientHooks hooks_;
};

}  // namespace tessera::detail
