// Stages: moves arrays between a mesh and its sub-meshes, and from one sub-mesh to another, with gradients.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Returns `type` on another mesh: a sub-mesh of its mesh, its whole mesh, or another sub-mesh of its whole mesh.
const Type* type_on(const Type* type, const MeshImpl* mesh);
// Returns the same mesh rules on that mesh; null stays null.
const MeshRulesImpl* mesh_rules_on(const MeshRulesImpl* mesh_rules, const MeshImpl* mesh);

// Returns the sub-mesh on which an operation on these arrays runs. For arrays on several stages it is the last stage
// with a parameter, else the last stage (under a VirtualStageWalk, the one visited last). For arrays all on the whole
// mesh, with an activation among them, it is the first stage of the open tape, if that has stages. Null if the
// operation runs on the arrays' own mesh.
const MeshImpl* stage_of(const ArrayImpl* const* operands, int n);

// Returns the earliest stage with a parameter of these arrays; null if there is none.
const MeshImpl* first_stage_of(const std::vector<Array>& arrays);

// Returns the type to which `a` is converted on its own mesh before it moves to `to`. The type has no partial sums. If
// `a` is on the whole mesh, the type is not sharded along the axis of the stages. If a gradient is wanted, the type is
// reduced over that axis and over the axes that `to` is reduced over, so that one sum reduces a parameter's gradient.
const Type* leaving_type(const ArrayImpl& a, const Type* to, bool recorded);

// Whether activations of this thread may only move to later stages. Under one_f_one_b the first stage takes the next
// micro-batch before it could receive this one, and would wait for it forever.
bool& goes_forward_only();

// Counts the messages between stages that this process has begun to send or to receive.
std::atomic<int64_t>& stage_messages();
// Whether an exception ended a pass of this thread after messages between processes. Some may not have been received,
// and would be taken for messages of a later step.
bool& has_stray_messages();

// The progress of one micro-batch through the virtual stages of an interleaved pipeline. Stage s of S has the virtual
// stages s, s + S, s + 2 * S and so on. An activation that is sent to another stage reaches its next virtual stage, and
// a gradient its previous one.
class VirtualStageWalk {
 public:
  struct Stages {
    int64_t count, virtual_each;  // virtual_each: virtual stages of each stage
    int64_t first, last;          // the stages of this process
  };
  // `suspend` is called before this process continues with the next of its virtual stages.
  VirtualStageWalk(const Stages& stages, std::function<void()> suspend);
  // Follows an activation that is about to be sent, and returns the virtual stage that it reaches.
  // Errors (invalid_argument)
  //   an activation that goes back to an earlier stage, or is sent in the backward pass
  int64_t go_to(const MeshImpl* from, const MeshImpl* stage, const Provenance& cause);
  // Follows the gradient of an activation that had reached this virtual stage.
  void go_back(int64_t reached, const MeshImpl* stage);
  // Returns which of these stages the micro-batch visited later; `a` may be null.
  const MeshImpl* later_of(const MeshImpl* a, const MeshImpl* b) const;
  // Ends the forward pass. Throws an Error (invalid_argument) if it did not reach the last virtual stages.
  void end_forward();

 private:
  Stages stages_;
  std::function<void()> suspend_;
  int64_t at_ = 0, next_own_;  // next_own_: this process's next virtual stage; in the backward pass, the previous one
  bool is_backward_ = false;
};
// Returns the walk of the micro-batch that this thread computes; null outside an interleaved pipeline.
VirtualStageWalk*& current_walk();

// Moves `start`, which is `a` in leaving_type, to the other mesh; recorded.
// - From the whole mesh to a sub-mesh: nothing is communicated, because each device has its blocks. The gradient is a
//   partial sum over the axis of the stages.
// - From one sub-mesh to another: each device sends to its counterpart (a permute over that axis).
// - From a sub-mesh to the whole mesh: the result is a partial sum over that axis: the value on this stage, zeros on
// the
//   others.
ArrayPtr moved_between_stages(const ArrayImpl& a, const ArrayPtr& start, const MeshImpl* to, const Provenance& cause);

}  // namespace tessera::detail
