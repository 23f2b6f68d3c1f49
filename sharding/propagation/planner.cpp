// Propagation: assigns mesh axes to factors from the operands, and resolves conflicts between them.
#include <algorithm>
#include <tuple>

#include "sharding/base/fail.h"
#include "sharding/placement/type.h"
#include "sharding/propagation/padded_factors.h"
#include "sharding/propagation/plan.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {
namespace {

// Returns true for the host and for an abstract mesh, which takes a tensor only for its shape.
bool reads_host_memory(const MeshImpl* mesh) { return !mesh || mesh->abstract || mesh->device.is_cpu(); }

using Candidates = std::vector<DimAxes>;  // the shardings that one factor may have, best first

bool contains(const Candidates& candidates, const DimAxes& axes) {
  return std::find(candidates.begin(), candidates.end(), axes) != candidates.end();
}

struct Score {
  int given_up = 0;                     // the factor by which the division of work decreases
  int contracted = 0;                   // axes that a summed dimension took from a dimension of the output
  double activations = 0, weights = 0;  // bytes
  bool operator<(const Score& o) const {
    return std::tie(given_up, contracted, activations, weights) <
           std::tie(o.given_up, o.contracted, o.activations, o.weights);
  }
};

class Planner {
 public:
  explicit Planner(const Problem& problem)
      : problem_(problem),
        rule_(bind_rule(problem.operation.name, problem.operation.rule(problem.attributes, problem.operands),
                        problem.operands)),
        padded_(rule_, problem.operation.padded) {
    for (const Type* type : problem.operands)
      if (type->mesh) plan_.mesh = type->mesh;
    for (const Type* type : problem.operands) plan_.varying |= type->varying;
    if (plan_.varying) refuse_captured();
    candidates_.resize(rule_.factors.size());
    for (const auto& term : rule_.out)
      for (const DimFactors& dim : term)
        for (int f : dim) in_output_.resize(rule_.factors.size()), in_output_[f] = true;
    in_output_.resize(rule_.factors.size());
  }

  std::shared_ptr<const Plan> make() {
    if (plan_.mesh) {
      collect();
      open_conflicts();
      if (!search()) open_all(), search();
    } else {
      choice_.resize(rule_.factors.size());
    }
    finish();
    return std::make_shared<const Plan>(std::move(plan_));
  }

 private:
  const MeshImpl* mesh() const { return plan_.mesh; }
  bool is_weight(size_t operand) const { return problem_.weights >> operand & 1; }

  // Throws for captured arrays: inside shard_map only its arguments may be sharded or unreduced over the axes along
  // which they vary.
  void refuse_captured() const {
    for (const Type* type : problem_.operands)
      if (const AxisSet apart = (type->sharded | type->unreduced) & plan_.varying)
        fail(ErrorKind::varying_axis, problem_.operation.name,
             "{} is not replicated over \"{}\", along which another operand varies: inside shard_map it cannot be "
             "captured. "
             "Pass it through in_specs.",
             type->to_string(), mesh()->names(apart));
  }

  // ---- which axes each factor could have

  // Distributes the axes of a dimension to its factors, from the major one on. Stops at an axis that does not divide a
  // factor.
  std::vector<DimAxes> distribute(const DimFactors& factors, const DimAxes& axes) const {
    std::vector<DimAxes> result(factors.size());
    if (factors.size() == 1 && !axes.empty() && !divides(factors[0], axes) && padded_.may_be_padded(factors[0]))
      return {axes};
    size_t f = 0;
    int64_t left = factors.empty() ? 1 : rule_.factors[factors[0]].size;
    for (int a : axes) {
      const int64_t n = mesh()->axes[a].size;
      while (f + 1 < factors.size() && left == 1) left = rule_.factors[factors[++f]].size;
      if (f >= factors.size() || left % n) break;
      left /= n;
      result[f].push_back(a);
    }
    return result;
  }

  void collect() {
    for (const bool weights : {false, true})
      for (size_t i = 0; i < problem_.operands.size(); ++i) {
        if (is_weight(i) != weights || !problem_.operands[i]->mesh) continue;
        for (size_t d = 0; d < rule_.in[i].size(); ++d) collect_dim(i, d);
      }
  }

  void collect_dim(size_t operand, size_t d) {
    const DimFactors& factors = rule_.in[operand][d];
    const std::vector<DimAxes> wanted = distribute(factors, problem_.operands[operand]->dims[d]);
    for (size_t k = 0; k < factors.size(); ++k) {
      if (wanted[k].empty()) continue;
      if (rule_.factors[factors[k]].kind == FactorKind::whole) {
        displaced_.push_back({operand, wanted[k]});
        continue;
      }
      divided_ |= wanted[k].axis_set();
      Candidates& candidates = candidates_[factors[k]];
      if (!contains(candidates, wanted[k])) candidates.push_back(wanted[k]);
    }
  }

  bool fits(int factor, const DimAxes& axes) const { return divides(factor, axes) || padded_.may_be_padded(factor); }
  bool divides(int factor, const DimAxes& axes) const {
    return rule_.factors[factor].size % mesh()->count(axes.axis_set()) == 0;
  }

  // Opens a factor for other shardings in three cases: its operands disagree, another factor uses one of its axes, or
  // it takes over the axes of a dimension that must be replicated. Only then may the factor be sharded over some of the
  // wanted axes, or not at all.
  void open_conflicts() {
    const std::vector<Candidates> wanted = candidates_;
    for (size_t f = 0; f < wanted.size(); ++f)
      if (!wanted[f].empty() && has_conflict(wanted, static_cast<int>(f))) open(f);
    for (const auto& [operand, axes] : displaced_) reassign_axes(operand, axes);
    for (Candidates& candidates : candidates_)
      if (candidates.empty()) candidates.push_back({});
  }

  void open(size_t factor) {
    const Candidates wanted = candidates_[factor];
    for (DimAxes part : wanted)
      while (!part.empty()) {
        part.pop_back();
        if (!contains(candidates_[factor], part)) candidates_[factor].push_back(part);
      }
    for (const DimAxes& axes : wanted)
      if (const DimAxes rest = without_conflicts(factor, axes); !contains(candidates_[factor], rest))
        candidates_[factor].push_back(rest);
  }

  // Returns the axes that no other factor uses: a weight over (data, model) next to a batch over data keeps model.
  DimAxes without_conflicts(size_t factor, const DimAxes& axes) const {
    AxisSet others = 0;
    for (size_t f = 0; f < candidates_.size(); ++f)
      if (f != factor) others |= axis_set_of(candidates_[f]);
    DimAxes rest;
    for (int a : axes)
      if (!(others >> a & 1)) rest.push_back(a);
    return rest;
  }

  // Opens all factors. The sharding on which operands agree may be invalid for the result: it may shard only the minor
  // factor of merged dimensions.
  void open_all() {
    for (size_t f = 0; f < candidates_.size(); ++f) open(f);
  }

  bool has_conflict(const std::vector<Candidates>& wanted, int factor) const {
    if (wanted[factor].size() > 1 || !fits(factor, wanted[factor][0])) return true;
    for (size_t other = 0; other < wanted.size(); ++other)
      for (const DimAxes& theirs : wanted[other])
        if (static_cast<int>(other) != factor && (theirs.axis_set() & wanted[factor][0].axis_set())) return true;
    return false;
  }

  // Moves the axes of a dimension that must be replicated to another dimension of that operand and of the output. Then
  // they still divide the work: attention over a sharded sequence becomes attention over sharded heads.
  void reassign_axes(size_t operand, const DimAxes& axes) {
    for (auto dim = rule_.in[operand].rbegin(); dim != rule_.in[operand].rend(); ++dim)
      for (int f : *dim) {
        if (rule_.factors[f].kind != FactorKind::free || !in_output_[f]) continue;
        DimAxes longer = candidates_[f].empty() ? DimAxes{} : candidates_[f][0];
        if (longer.axis_set() & axes.axis_set()) continue;
        for (int a : axes) longer.push_back(a);
        if (!divides(f, longer)) continue;
        if (candidates_[f].empty()) candidates_[f].push_back({});
        if (!contains(candidates_[f], longer)) candidates_[f].push_back(longer);
        divided_ |= axes.axis_set();
      }
  }

  // ---- the search

  bool search() {
    std::vector<size_t> pick(candidates_.size(), 0);
    bool found = false;
    Score best;
    std::vector<DimAxes> now(candidates_.size());
    for (;;) {
      for (size_t f = 0; f < pick.size(); ++f) now[f] = candidates_[f][pick[f]];
      if (is_legal(now)) {
        const Score score = score_of(now);
        if (!found || score < best) best = score, choice_ = now, found = true;
      }
      size_t f = pick.size();  // factors of later operands change first
      while (f > 0 && ++pick[f - 1] == candidates_[f - 1].size()) pick[--f] = 0;
      if (f == 0) return found;
    }
  }

  // Returns true if each axis is used once, every factor is divisible, and a compound dimension is sharded from its
  // major factor on.
  bool is_legal(const std::vector<DimAxes>& choice) const {
    AxisSet used = 0;
    for (size_t f = 0; f < choice.size(); ++f) {
      if ((used & choice[f].axis_set()) || !fits(static_cast<int>(f), choice[f])) return false;
      used |= choice[f].axis_set();
    }
    const auto legal = [&](const std::vector<DimFactors>& term) {
      return std::all_of(term.begin(), term.end(), [&](const DimFactors& dim) { return is_contiguous(dim, choice); });
    };
    return std::all_of(rule_.in.begin(), rule_.in.end(), legal) &&
           std::all_of(rule_.out.begin(), rule_.out.end(), legal);
  }

  bool is_contiguous(const DimFactors& dim, const std::vector<DimAxes>& choice) const {
    bool exhausted = true;  // all previous factors are split into single elements
    for (int f : dim) {
      if (!choice[f].empty() && !exhausted) return false;
      exhausted = exhausted && rule_.factors[f].size == mesh()->count(choice[f].axis_set());
    }
    return true;
  }

  Score score_of(const std::vector<DimAxes>& choice) const {
    Score score;
    const AxisSet used = axis_set_of(choice);
    score.given_up = mesh()->count(divided_ & ~used);
    for (size_t f = 0; f < choice.size(); ++f)
      if (!in_output_[f]) score.contracted += std::popcount(choice[f].axis_set() & wanted_by_output(f));
    const Targets targets = targets_for(choice);
    for (size_t i = 0; i < problem_.operands.size(); ++i) {
      const Type* from = problem_.operands[i];
      const double cost = route(from, from->slots, targets.recorded[i]).cost;
      (is_weight(i) ? score.weights : score.activations) += cost;
    }
    for (const Type* out : outputs(choice, targets)) {
      const int n = mesh()->count(out->unreduced & ~targets.pending);
      score.activations += 2.0 * out->bytes * (n - 1) / n;
    }
    return score;
  }

  AxisSet wanted_by_output(size_t contracted) const {
    AxisSet mask = 0;
    for (size_t f = 0; f < candidates_.size(); ++f)
      if (f != contracted && in_output_[f]) mask |= axis_set_of(candidates_[f]);
    return mask;
  }

  // ---- the types that follow from a choice

  struct Targets {
    std::vector<const Type*> plain, recorded;
    AxisSet vary = 0;     // axes along which the work differs
    AxisSet pending = 0;  // axes over which operands stay partial sums
    AxisSet reduced = 0;
  };

  Targets targets_for(const std::vector<DimAxes>& choice) const {
    const size_t n = problem_.operands.size();
    const AxisSet used = axis_set_of(choice);
    Targets t;
    std::vector<AxisSet> kept(n, 0);
    keep_pending(used, kept, t.pending);
    t.vary = used | t.pending | plan_.varying;
    for (const Type* type : problem_.operands) t.reduced |= type->reduced;
    for (size_t i = 0; i < n; ++i) {
      TypeKey key = *on_mesh(problem_.operands[i], mesh());
      for (size_t d = 0; d < key.dims.size(); ++d) {
        key.dims[d] = {};
        for (int f : rule_.in[i][d])
          for (int a : choice[f]) key.dims[d].push_back(a);
      }
      key.unreduced = kept[i];
      key.padded = any_dim;
      const AxisSet own = axis_set_of(key.dims) | key.unreduced | key.varying;
      key.reduced = problem_.operands[i]->reduced & ~own;
      t.plain.push_back(intern(key));
      key.reduced = (t.vary | t.reduced) & ~own;
      t.recorded.push_back(intern(key));
    }
    return t;
  }

  // Returns the axes over which an operand may stay a partial sum. Integers wrap and a sum of bool is "or", so these
  // are summed before a conversion to another type.
  AxisSet may_pend(const Type* type) const {
    return is_floating(type->dtype) || type->dtype == problem_.out_dtype ? type->unreduced : 0;
  }

  // Selects the operands that stay partial sums, over axes that the work does not use otherwise.
  void keep_pending(AxisSet used, std::vector<AxisSet>& kept, AxisSet& pending) const {
    if (problem_.operation.linearity == Linearity::additive) {
      pending = ~used;
      for (const Type* type : problem_.operands) pending &= may_pend(type);
      std::fill(kept.begin(), kept.end(), pending);
    }
    if (problem_.operation.linearity == Linearity::linear_in_first)
      kept[0] = pending = may_pend(problem_.operands[0]) & ~used;
    if (problem_.operation.linearity == Linearity::multilinear)
      for (size_t i = 0; i < kept.size(); ++i) {
        kept[i] = may_pend(problem_.operands[i]) & ~used & ~pending;
        pending |= kept[i];
      }
  }

  AxisSet reduced_inside(const std::vector<DimAxes>& choice) const {
    AxisSet mask = 0;
    for (size_t f = 0; f < choice.size(); ++f)
      if (rule_.factors[f].kind == FactorKind::reduced_inside) mask |= choice[f].axis_set();
    return mask;
  }

  std::vector<const Type*> outputs(const std::vector<DimAxes>& choice, const Targets& targets) const {
    std::vector<const Type*> types;
    for (const auto& term : rule_.out) {
      TypeKey key{
          .dtype = types.empty() ? problem_.out_dtype : problem_.rest_dtype, .shape = {}, .mesh = mesh(), .dims = {}};
      key.padded = any_dim;
      AxisSet sharded = 0;
      for (const DimFactors& dim : term) {
        int64_t size = 1;
        key.dims.emplace_back();
        for (int f : dim) {
          size *= rule_.factors[f].size;
          for (int a : choice[f]) key.dims.back().push_back(a);
          sharded |= choice[f].axis_set();
        }
        key.shape.push_back(size);
      }
      key.varying = plan_.varying;
      key.unreduced = targets.vary & ~sharded & ~reduced_inside(choice) & ~key.varying;
      key.reduced = targets.reduced & ~targets.vary;
      types.push_back(intern(std::move(key), problem_.operation.name));
    }
    return types;
  }

  void finish() {
    if (!mesh()) {
      for (const Type* type : problem_.operands) plan_.operands.push_back({type, type, {0}, {0}});
      plan_.out = outputs(choice_, {});
    } else {
      const Targets targets = targets_for(choice_);
      plan_.reduced_inside = reduced_inside(choice_);
      plan_.slots = mesh()->stored(targets.vary);
      plan_.runs = mesh()->slots(plan_.slots);
      plan_.out = outputs(choice_, targets);
      for (size_t i = 0; i < problem_.operands.size(); ++i) add_operand(i, targets);
      padded_.note_in(plan_);
      plan_.reason = reason_of({mesh(), problem_, rule_, targets.plain, targets.vary, plan_.reduced_inside});
    }
    for (size_t f = 0; f < rule_.factors.size(); ++f) add_factor(f);
  }

  void add_operand(size_t i, const Targets& targets) {
    const Type* given = problem_.operands[i];
    // An uncommitted operand that is not sharded is read as it is, if its memory is accessible.
    const bool stays = !given->mesh && !targets.plain[i]->own() && reads_host_memory(mesh());
    const Type* plain = stays ? given : targets.plain[i];
    plan_.operands.push_back({plain, targets.recorded[i], index(plain), index(targets.recorded[i])});
  }

  std::vector<int> index(const Type* type) const {
    std::vector<int> places;
    for (int s = 0; s < plan_.runs; ++s)
      places.push_back(type->mesh ? project(mesh(), plan_.slots, s, type->slots) : 0);
    return places;
  }

  void add_factor(size_t f) {
    Plan::FactorPlace place{
        .name = rule_.factors[f].name, .size = rule_.factors[f].size, .axes = choice_[f], .offset = {}};
    const int devices = mesh() ? mesh()->count(place.axes.axis_set()) : 1;
    place.local = block_size(place.size, devices);
    for (int s = 0; s < plan_.runs; ++s) {
      Coordinates coordinates(mesh());
      if (mesh()) unravel(mesh(), plan_.slots, s, coordinates);
      place.offset.push_back(mesh() ? block_number(mesh(), place.axes, coordinates) * place.local : 0);
    }
    plan_.factors.push_back(std::move(place));
  }

  const Problem& problem_;
  BoundRule rule_;
  PaddedFactors padded_;
  Plan plan_;
  std::vector<bool> in_output_;
  std::vector<Candidates> candidates_;
  std::vector<std::pair<size_t, DimAxes>> displaced_;
  AxisSet divided_ = 0;  // axes that divide the work with the operands' current shardings
  std::vector<DimAxes> choice_;
};

}  // namespace

std::shared_ptr<const Plan> make_plan(const Problem& problem) { return Planner(problem).make(); }

}  // namespace tessera::detail
