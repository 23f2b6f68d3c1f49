// DirectedStep: a step in one of its two directions.
#pragma once

#include <c10/util/accumulate.h>

#include "sharding/array/padding.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/route.h"
#include "sharding/redistribution/step.h"

namespace tessera::detail {

enum class Direction : uint8_t { forward, backward };

// One collective over a step's groups, from the operand's slots to the result's, or backward.
struct DirectedStep {
  const Step& step;
  Collective collective;
  bool is_backward = false;

  int devices() const { return step.mesh->count(step.axes); }
  int processes() const { return step.mesh->processes_over(step.axes); }  // that have them
  const std::vector<int>& slots_from(const Group& group) const { return is_backward ? group.out : group.in; }
  const std::vector<int>& slots_to(const Group& group) const { return is_backward ? group.in : group.out; }
  const MeshImpl* mesh() const { return is_backward && step.mesh_before ? step.mesh_before : step.mesh; }
  AxisSet axes() const { return step.mesh_before ? mesh()->all() : step.axes; }
  // An all_to_all swaps its dims on the way back.
  bool swaps() const { return is_backward && collective == Collective::all_to_all; }
  int dim() const { return swaps() ? step.to_dim : step.dim; }
  int to_dim() const { return swaps() ? step.dim : step.to_dim; }

  // The sizes of the dim that is cut into padded blocks, and of the one that is joined from such; 0: none is.
  int64_t size_cut() const {
    if (collective == Collective::all_to_all) return is_backward ? step.size : step.to_size;
    return collective == Collective::slice || collective == Collective::reduce_scatter ? step.size : 0;
  }
  int64_t size_joined() const {
    if (collective == Collective::all_to_all) return is_backward ? step.to_size : step.size;
    return collective == Collective::all_gather || collective == Collective::pad ? step.size : 0;
  }
  int64_t with_padding(int64_t size) const { return block_size(size, devices()) * devices(); }
  Tensors padded(const Tensors& x) const {
    if (!size_cut()) return x;
    const int cut = collective == Collective::all_to_all ? to_dim() : dim();
    Tensors longer;
    for (const at::Tensor& t : x) longer.push_back(lengthened(t, cut, with_padding(size_cut())));
    return longer;
  }
  Tensors without_padding(const Tensors& x) const {
    if (!size_joined()) return x;
    Tensors shorter;  // what devices share, they share still
    for (size_t i = 0; i < x.size(); ++i)
      shorter.push_back(i && x[i].is_same(x[i - 1]) ? shorter.back()
                                                    : x[i].narrow(dim(), 0, size_joined()).contiguous());
    return shorter;
  }
  int64_t padded_bytes(int64_t bytes) const {
    return size_cut() ? bytes / size_cut() * with_padding(size_cut()) : bytes;
  }

  int64_t result_bytes(int64_t bytes, int64_t item) const {
    if (step.exchange) return (is_backward ? step.exchange->returned : step.exchange->received) * item;
    return traits_of(collective).result_bytes(padded_bytes(bytes), devices());
  }
  // Of the result on a device, of which it may have received only a part.
  int64_t bytes_after(int64_t bytes, int64_t item) const {
    if (step.exchange) return c10::multiply_integers(step.exchange->out) * item;
    const int64_t after = result_bytes(bytes, item);
    return size_joined() ? after / with_padding(size_joined()) * size_joined() : after;
  }
};

// Returns the collective of the step's row in this direction.
inline DirectedStep in_direction(const Step& step, Direction direction) {
  const TableRow& row = table_row(step.row);
  if (direction == Direction::forward) return {step, row.forward};
  return {step, row.backward, true};
}

}  // namespace tessera::detail
