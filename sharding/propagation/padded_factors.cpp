// Padding by the factors of a rule.
#include "sharding/propagation/padded_factors.h"

#include <limits>

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

}  // namespace tessera::detail
