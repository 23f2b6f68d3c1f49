// Padding filled before an operation, and cleared after it.
#include "sharding/propagation/padded_operands.h"

#include "sharding/array/autograd.h"
#include "sharding/array/padding.h"

namespace tessera::detail {

void read_padded(Prepared& call, const CallSite& site, int i) {
  const ArrayImpl& a = *call.array[i];
  const uint64_t filled = call.plan->operands[i].filled;
  const double fill = filled ? call.plan->fill : 0;
  if (fill == 0 && !is_recorded(a.local[0])) return;
  ArrayPtr read = make_array(a.type, a.slots, padded_operand(site.operation.name, a, fill, filled));
  read->weight = a.weight;
  read->layout = a.layout;
  call.array[i] = read.get();
  call.own().padded.push_back(std::move(read));
}

void clear_padding(const Prepared& call, ArrayImpl& result) {
  const auto is_view = [&](const at::Tensor& t) {  // of an operand, whose padding is zeros
    for (int i = 0; i < call.operands; ++i)
      for (const at::Tensor& given : call.array[i]->local)
        if (t.is_alias_of(given)) return true;
    return false;
  };
  if (result.type->padded && !is_view(result.local[0])) clear_padding(result.type, result.slots, result.local);
}

}  // namespace tessera::detail
