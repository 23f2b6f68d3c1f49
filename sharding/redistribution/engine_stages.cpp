// Messages between stages: each device of a stage sends its tensors to the device at its place on another stage.
#include <ATen/ops/zeros.h>

#include "sharding/array/abstract_tensor.h"
#include "sharding/redistribution/engine.h"

namespace tessera::detail {
namespace {

// Of the devices beside this process's own, those on that stage.
int process_on(const MeshImpl* stage) {
  const MeshImpl* whole = stage->parent;
  Coordinates coordinates(whole);
  coordinates[stage->cut_axis] = stage->cut_at;
  return whole->process_of(ravel_place(whole, whole->all(), coordinates));
}

// Each direction between two processes has a group of its own, in which messages are matched by their order: they go
// in another order than the collectives of both. A send is under way while this process goes on.
void send(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting) {
  std::vector<Message> messages;
  for (const at::Tensor& t : x) messages.push_back({1, t.detach().contiguous()});
  ProcessGroup& group = process_group({from->mesh->process, process_on(to->mesh)}, from->mesh->device).p2p_channel();
  (void)group.exchange(std::move(messages), {}, waiting);
}

Tensors received(const Type* from, const Type* to, const WaitContext& waiting) {
  Tensors arrived;
  std::vector<Message> messages;
  for (int i = 0; i < to->mesh->slots(to->slots); ++i) {
    arrived.push_back(at::zeros(to->local, at::TensorOptions(scalar_type(to->dtype)).device(to->mesh->device)));
    messages.push_back({0, arrived.back()});
  }
  process_group({process_on(from->mesh), to->mesh->process}, to->mesh->device)
      .p2p_channel()
      .exchange({}, std::move(messages), waiting)
      ->wait();
  return arrived;
}

}  // namespace

Tensors pass_between_processes(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting) {
  const bool gives = !from->mesh->elsewhere, gets = !to->mesh->elsewhere;
  if (gives && gets) return local_engine().pass(from, to, x, waiting);
  if (gets) return received(from, to, waiting);
  if (gives) send(from, to, x, waiting);
  return {abstract_block(to)};
}

}  // namespace tessera::detail
