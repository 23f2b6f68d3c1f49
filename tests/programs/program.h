// The representation of a random program. draw.h makes programs from a seed, evaluate.h runs them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sharding/array/gradient_options.h"
#include "sharding/autodiff/remat.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/partition_spec.h"
#include "tests/sharding/operations/cases.h"

namespace tessera::programs {

using testing::Case;

// A new kind of node needs: a line in `run` of interpreter.h, in draw.cpp, and in print.cpp.
enum class Kind : uint8_t {
  call,        // a validator case's function of the operands
  fit,         // the operand sliced, tiled or summed to `shape`
  squash,      // lo + (hi - lo) * sigmoid(x): values that a function takes
  scale,       // x * hi
  half,        // x rounded to float16 or bfloat16 and back
  constrain,   // x in the sharding `spec`
  remat,       // the body, recomputed in the backward pass
  gradient,    // d (sum of the body's results) / d operand 0, the other operands being constants
  jvp,         // the derivative of the body's result, by operand 0 in the direction 0.5 * operand 0 + 0.25
  dlpack,      // stop_gradient(x), exported and imported
  shard_map,   // the body on each device's blocks
  collective,  // inside shard_map
};

enum class Collective : uint8_t { psum, pmean, pmax, all_gather, psum_scatter, all_to_all, ppermute };

struct Node;

// Straight-line code. Its values are numbered: first the arguments, then the results of each node.
struct Body {
  int arguments = 0;
  std::vector<Node> nodes;
  std::vector<int> results;
};

struct Node {
  Kind kind = Kind::call;
  std::vector<int> operands;
  int which = 0;  // index of a case, a RematPolicy or a Collective; for `half`: 1 is bfloat16, 0 float16
  Shape shape;
  double lo = 0, hi = 1;
  PartitionSpec spec;  // for `constrain`
  Body body;
  std::vector<PartitionSpec> in_specs, out_specs;
  SpecEntry axes;              // for a collective
  int dim = 0, other_dim = 0;  // for a collective
  std::vector<uint32_t> vary;  // in shard_map, for each value of a body: the axes over which it varies
  bool differentiable = true;  // for `gradient`
  int num_results() const { return body.results.empty() ? 1 : static_cast<int>(body.results.size()); }
};

// An input of the program.
struct Leaf {
  enum Role : uint8_t { parameter, frozen, input, batch } role = input;
  at::Tensor value;                                  // for a batch: one micro-batch
  std::vector<at::Tensor> more = {};                 // for a batch: the other micro-batches
  std::optional<PartitionSpec> spec = std::nullopt;  // nullopt: never placed
  int layer = 0;                                     // for a parameter: the element of the model's list that owns it
};

// How the loss is differentiated, and what is done with the gradient.
enum class Outer : uint8_t { value_and_grad, accumulate, pipeline, train };

struct Program {
  uint64_t seed = 0;
  std::vector<MeshAxis> axes;
  bool private_replicas = false;
  std::vector<Leaf> leaves;
  Body body;                      // its arguments are the leaves
  std::vector<uint64_t> weights;  // per result, the seed of its cotangent
  Outer outer = Outer::value_and_grad;
  int num_micro_batches = 1, steps = 1;
  GradientOptions options;
  int optimizer = 0;                          // for `train`: which of two chains
  std::vector<std::string> shard_state_over;  // for `train`
  std::vector<MeshAxis> restored_axes;        // for `train`: the mesh of the last step, after a restore; empty: `axes`
  double tolerance = 1e-9;
  bool special = false;  // a leaf has inf or NaN; compared only with the program without a mesh

  Mesh mesh(bool abstract = false) const {
    return make_mesh(axes, {.private_replicas = private_replicas && !abstract, .abstract = abstract});
  }
};

const std::vector<Case>& cases();

// Calls `f` for each node of the body and of nested bodies, with the kinds of the nodes that contain it, outermost
// first.
template <class F>
void for_each_node(const Body& body, const F& f, std::vector<Kind> around = {}) {
  for (const Node& node : body.nodes) {
    f(node, around);
    std::vector<Kind> inner = around;
    inner.push_back(node.kind);
    for_each_node(node.body, f, inner);
  }
}

inline int count_of_nodes(const Program& program) {
  int n = 0;
  for_each_node(program.body, [&](const Node&, const auto&) { ++n; });
  return n;
}

}  // namespace tessera::programs
