// One all_reduce for the ledger, whenever it was begun.
#include "sharding/redistribution/overlapped_sums.h"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "sharding/accounting/finite_check.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/check_mode.h"
#include "sharding/redistribution/replica_checks.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {
namespace {

// The step of a way that is nothing but a sum over processes; null for others.
const Step* sum_of(const Resharding& way, Collective TableRow::*direction) {
  if (way.steps.size() != 1) return nullptr;
  const Step& step = *way.steps[0];
  return table_row(step.row).*direction == Collective::all_reduce && crosses_processes(step) ? &step : nullptr;
}

// A guard is asked before anything moves, and a check sees what moved.
bool may_begin(int64_t elements) { return elements > max_small_elements && !is_guarded() && !checks_finite(); }

Tensors awaited(const Step& step, const Resharding& way, std::vector<SumWork>& begun, bool back, int64_t bytes) {
  const auto said = [&] {
    return Communication{.bytes = bytes,
                         .cause = way.cause,
                         .from = back ? way.to : way.from,
                         .to = back ? way.from : way.to,
                         .backward = back};
  };
  return communicate(Sum{way.cause.operation, step.mesh, step.axes, step.axes, begun, said}, {});
}

}  // namespace

bool overlaps_sums(const MeshImpl* mesh) {
  const TapeState* tape = current_tape();
  return tape && tape->options.overlap_sums && !tape->nested && mesh && mesh->crossing() &&
         mesh->slots(mesh->all()) == 1;
}

std::shared_ptr<SumBack> SumBack::of(const ArrayImpl& a, const std::shared_ptr<const Resharding>& way) {
  if (a.weight || !overlaps_sums(way->to->mesh) || !sum_of(*way, &TableRow::backward)) return nullptr;
  return current_tape()->sums.emplace_back(std::make_shared<SumBack>(way));
}

void SumBack::begin(const Tensors& gradients) {
  if (!may_begin(gradients[0].numel())) return;
  const Step& step = *way_->steps[0];
  begun_.emplace(step.mesh, step.axes, as_dtype(gradients, way_->gradients), way_->cause);
}

Tensors SumBack::finish(Tensors gradients) {
  if (!begun_) return way_->backward(std::move(gradients));
  std::vector<SumWork> begun;
  begun.push_back(*std::exchange(begun_, {}));
  const int64_t bytes = gradients[0].numel() * item_size(way_->gradients);
  gradients.clear();
  return awaited(*way_->steps[0], *way_, begun, true, bytes);
}

std::optional<SummedProduct> summed_in_halves(const LaterProduct& product, const Resharding& way) {
  const Step* step = sum_of(way, &TableRow::forward);
  if (!step || way.from->dtype != way.to->dtype) return std::nullopt;
  const at::Tensor all = product.place();
  const int64_t rows = all.size(0), half = rows / 2;
  if (half == 0 || !may_begin(half * all.size(1))) return std::nullopt;
  const at::AutoGradMode off(false);
  std::vector<SumWork> begun;
  for (const auto& [from, to] : {std::pair(int64_t{0}, half), std::pair(half, rows)}) {
    at::Tensor part = all.narrow(0, from, to - from);
    product.compute(from, part);
    begun.emplace_back(step->mesh, step->axes, part, way.cause);
  }
  awaited(*step, way, begun, false, static_cast<int64_t>(all.nbytes()));
  SummedProduct summed{product.recorded(all), {}};
  for (const at::Tensor& t : summed.pending) summed.sum.push_back(t.detach());
  if (checks) check_replicas_across_processes(way.to, summed.sum, way.cause);
  return summed;
}

}  // namespace tessera::detail
