// Determines which factors may be padded, and prepares operands and results for it.
#include "sharding/propagation/padded_factors.h"

#include <limits>
#include <numeric>

#include "sharding/array/autograd.h"
#include "sharding/array/padding.h"

namespace tessera::detail {
namespace {

double fill_of(Padded padded) {
  if (padded == Padded::ones || padded == Padded::kept_as_ones) return 1;
  if (padded == Padded::lowest) return -std::numeric_limits<double>::infinity();
  return padded == Padded::highest ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace

PaddedFactors::PaddedFactors(const BoundRule& rule, Padded padded)
    : rule_(rule), padded_(padded), in_output_(rule.factors.size()), beside_others_(rule.factors.size()) {
  for (const auto* terms : {&rule.in, &rule.out})
    for (const auto& term : *terms)
      for (const DimFactors& dim : term)
        for (const int f : dim) {
          if (terms == &rule.out) in_output_[f] = true;
          if (dim.size() > 1) beside_others_[f] = true;
        }
}

bool PaddedFactors::is_reduced(int factor) const {
  return !in_output_[factor] || rule_.factors[factor].kind == FactorKind::reduced_inside;
}

bool PaddedFactors::may_be_padded(int factor) const {
  if (rule_.factors[factor].kind == FactorKind::whole || beside_others_[factor]) return false;
  if (padded_ == Padded::inside && rule_.factors[factor].kind == FactorKind::reduced_inside) return true;
  return padded_ > Padded::inside || (padded_ > Padded::removed && !is_reduced(factor));
}

void PaddedFactors::note_in(Plan& plan) const {
  plan.fill = fill_of(padded_);
  for (const Type* type : plan.out) plan.is_padded |= type->padded != 0;
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    Plan::Operand& operand = plan.operands[i];
    plan.is_padded |= operand.plain->padded != 0;
    for (size_t d = 0; d < operand.plain->shape.size(); ++d)
      if (operand.plain->is_padded(d) && (padded_ == Padded::kept_as_ones || is_reduced(rule_.in[i][d][0])))
        operand.filled |= uint64_t{1} << d;
  }
}

// ---- the padding of operands and results

namespace {

bool lacks_padded_dim(const Type& operand, const Type& result) {
  for (size_t from_end = 1; from_end <= result.shape.size(); ++from_end)
    if (result.is_padded(result.shape.size() - from_end) &&
        (from_end > operand.shape.size() || !operand.is_padded(operand.shape.size() - from_end)))
      return true;
  return false;
}

}  // namespace

void expand_over_padding(Prepared& call, const CallSite& site) {
  const Plan& plan = *call.plan;
  if (plan.fill != 1 || call.operands == 1) return;
  for (int i = 0; i < call.operands; ++i) {
    const ArrayImpl& a = *call.array[i];
    if (!is_recorded(a.local[0]) || !lacks_padded_dim(*a.type, *plan.out[0])) continue;
    Tensors given;
    for (int s = 0; s < plan.runs; ++s) given.push_back(*call.local(i, s));
    ArrayPtr read = make_array(with_dtype(plan.out[0], a.type->dtype), plan.slots,
                               expanded_over_padding(site.operation.name, given, plan.out[0], plan.slots));
    read->weight = a.weight;
    read->mesh_rules = a.mesh_rules;
    CallState& own = call.own();
    own.every_slot.resize(plan.runs);
    std::iota(own.every_slot.begin(), own.every_slot.end(), 0);
    call.array[i] = read.get();
    call.index[i] = own.every_slot.data();
    own.padded.push_back(std::move(read));
  }
}

void read_padded(Prepared& call, const CallSite& site, int i) {
  const ArrayImpl& a = *call.array[i];
  const uint64_t filled = call.plan->operands[i].filled;
  const double fill = filled ? call.plan->fill : 0;
  if (fill == 0 && !is_recorded(a.local[0])) return;
  ArrayPtr read = make_array(a.type, a.slots, padded_operand(site.operation.name, a, fill, filled));
  read->weight = a.weight;
  read->mesh_rules = a.mesh_rules;
  call.array[i] = read.get();
  call.own().padded.push_back(std::move(read));
}

void clear_padding(const Prepared& call, ArrayImpl& result) {
  const auto is_view = [&](const at::Tensor& t) {  // a view of an operand, whose padding is zeros already
    for (int i = 0; i < call.operands; ++i)
      for (const at::Tensor& given : call.array[i]->local)
        if (t.is_alias_of(given)) return true;
    return false;
  };
  if (result.type->padded && !is_view(result.local[0])) clear_padding(result.type, result.slots, result.local);
}

}  // namespace tessera::detail
