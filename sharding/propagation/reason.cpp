// Explains why operands are resharded: partial sums, dimensions that must be replicated, axes that two dimensions use.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "sharding/propagation/plan.h"

namespace tessera::detail {
namespace {

class Reasons {
 public:
  explicit Reasons(const PlannerChoice& choice) : c_(choice) {}

  Text text() const {
    std::vector<std::string> clauses;
    for (size_t i = 0; i < c_.problem.operands.size(); ++i)
      if (moves(i)) clauses.push_back(clause(i));
    if (c_.reduced_inside)
      clauses.push_back(fmt::format("{} reduces over {} itself", c_.problem.operation.name, names(c_.reduced_inside)));
    if (c_.vary) clauses.push_back("the work is split over " + names(c_.vary));
    if (clauses.empty()) return nullptr;
    return as_text(fmt::format("{}", fmt::join(clauses, "; ")));
  }

 private:
  std::string names(AxisSet axes) const { return c_.mesh->names(axes); }
  const Type& given(size_t operand) const { return *c_.problem.operands[operand]; }

  bool moves(size_t i) const {
    const Type &from = given(i), &to = *c_.brought_to[i];
    const bool is_cut_bias = i == 2 && is_product() && !from.sharded;  // each device slices its bias locally
    return from.mesh && !is_cut_bias && (from.dims != to.dims || (from.unreduced & ~to.unreduced));
  }

  bool is_product() const { return std::string_view(c_.problem.operation.name) == "matmul"; }

  std::string name(size_t i) const {
    const size_t n = c_.problem.operands.size();
    if (n == 1) return "the operand";
    return n > 2 && !is_product() ? fmt::format("operand {}", i) : i == 0 ? "lhs" : i == 1 ? "rhs" : "bias";
  }

  std::string clause(size_t i) const {
    const Type &from = given(i), &to = *c_.brought_to[i];
    const std::string end = fmt::format("{} is resharded to {}", name(i), to.to_string());
    if (const AxisSet summed = from.unreduced & ~to.unreduced)
      return fmt::format("{} {} is a partial sum over {}, and {} needs its value: {}", name(i), from.to_string(),
                         names(summed), c_.problem.operation.name, end);
    for (size_t dim = 0; dim < from.dims.size(); ++dim)
      for (const int axis : from.dims[dim])
        if (!(to.dims[dim].axis_set() >> axis & 1)) return cause(i, dim, axis) + ", so " + end;
    return end;
  }

  // Returns why `axis` no longer shards this dimension.
  std::string cause(size_t i, size_t dim, int axis) const {
    if (given(i).is_padded(dim))
      return fmt::format("{} does not support padding, which dim {} of {} {} has", c_.problem.operation.name, dim,
                         name(i), given(i).to_string());
    for (const int f : c_.rule.in[i][dim])
      if (c_.rule.factors[f].kind == FactorKind::whole)
        return fmt::format("{} needs dim {} of {} {} replicated", c_.problem.operation.name, dim, name(i),
                           given(i).to_string());
    const AxisSet one = AxisSet{1} << axis;
    for (size_t j = 0; j < c_.problem.operands.size(); ++j)
      for (size_t e = 0; e < given(j).dims.size(); ++e) {
        const bool same_factor = c_.rule.in[j][e] == c_.rule.in[i][dim];
        if (j == i || given(j).dims[e].empty()) continue;
        if (!same_factor && (given(j).dims[e].axis_set() & one))
          return disagree(i, j,
                          fmt::format("{} shards dim {} of {} and dim {} of {}", names(one), e, name(j), dim, name(i)));
        if (same_factor && given(j).dims[e] != given(i).dims[dim])
          return disagree(
              i, j,
              fmt::format("{} shards dim {} of {}, {} the same dim of {}", names(given(j).dims[e].axis_set()), e,
                          name(j), names(given(i).dims[dim].axis_set()), name(i)));
      }
    return fmt::format("the result cannot keep dim {} of {} {} over {}", dim, name(i), given(i).to_string(),
                       names(one));
  }

  std::string disagree(size_t i, size_t j, const std::string& how) const {
    const size_t first = std::min(i, j), second = std::max(i, j);
    return fmt::format("{} {} and {} {} disagree: {}", name(first), given(first).to_string(), name(second),
                       given(second).to_string(), how);
  }

  const PlannerChoice& c_;
};

}  // namespace

Text reason_of(const PlannerChoice& choice) { return Reasons(choice).text(); }

}  // namespace tessera::detail
