// The second run of remat: fresh leaves for activations, the tape's own leaves for parameters.
#include "sharding/autodiff/remat.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/autodiff/saved_results.h"
#include "sharding/base/caller.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/stages.h"

namespace tessera {

using namespace detail;

namespace {

using Arrays = std::vector<Array>;
using Function = std::function<Arrays(const Arrays&)>;

// Returns the tape's parameter from which `a` was made by casts, views and scalings, or `a` itself if it is one; else
// null.
ArrayPtr root_parameter(ArrayPtr a) {
  while (a && !is_tape_parameter(*a)) a = a->details && a->details->again ? a->details->source : nullptr;
  return a;
}

// Makes `a` again from its parameter, in the current graph.
ArrayPtr made_again(const ArrayPtr& a) {
  std::vector<const ArrayImpl*> copies;  // from `a` back to the first copy
  ArrayPtr made = a;
  for (; !is_tape_parameter(*made); made = made->details->source) copies.push_back(made.get());
  for (; !copies.empty(); copies.pop_back()) {
    const Details& copy = *copies.back()->details;
    const ArrayPtr source = std::exchange(made, copy.again(made));
    Details& details = made->detail();
    details.come_from(source);
    details.again = copy.again;
    details.cast = copy.cast;
    details.path = copy.path;
  }
  return made;
}

ArrayPtr with_tensors(const ArrayPtr& a, Tensors tensors) {
  ArrayPtr made = make_array(a->type, a->slots, std::move(tensors));
  made->weight = a->weight;
  made->mesh_rules = a->mesh_rules;
  if (a->details) made->detail().path = a->details->path;
  return made;
}

// The arguments of one call of remat, and its second run.
class Recomputation {
 public:
  Recomputation(Function f, const Arrays& arguments, RematPolicy policy) : f_(std::move(f)) {
    if (policy == RematPolicy::dots_saveable) kept_.emplace();
    const MeshImpl* stage = first_stage_of(arguments);
    for (const Array& x : arguments) {
      ArrayPtr a = x.is_absent() ? nullptr : (materialized(x, "remat"), x.impl());
      const bool wanted = a && wants_gradient(*a);
      has_values_ |= wanted && !(a->type->mesh && a->type->mesh->abstract);
      const ArrayPtr root = wanted ? root_parameter(a) : nullptr;
      if (root && std::find(parameters_.begin(), parameters_.end(), root) == parameters_.end())
        parameters_.push_back(root);
      if (root) add_tape(root->details->tape);
      // Moves activations to the stage once, not again in the second run.
      if (wanted && !root && are_stages(a->type->mesh, stage))
        a = convert(*a, a, type_on(a->type, stage), {.operation = "remat"});
      if (wanted && !root) inputs_.append(a->local.begin(), a->local.end());
      arguments_.push_back({a, root != nullptr, wanted && !root});
    }
    for (const auto& tape : tapes_) inputs_.push_back(tape->anchor);
  }

  // Returns the tensors of the recorded function's inputs.
  const Tensors& inputs() const { return inputs_; }

  // Runs f the first time; its results are fresh arrays, over which a function can be recorded.
  Arrays run() const {
    at::AutoGradMode off(false);
    Arrays results = run_first();
    for (Array& x : results)
      if (!x.is_absent()) {
        materialized(x, "remat");
        x = Array(with_tensors(x.impl(), x.impl()->local));
      }
    return results;
  }

  // Returns the gradients of inputs() from the gradients of the results' tensors.
  Tensors backward(Tensors gradients) const {
    at::AutoGradMode on(true);
    Tensors leaves;
    const std::vector<std::list<Conversion>> kept = take_conversions();
    Tensors roots = recorded_tensors(as_recorded(run_again(again(leaves))));
    const size_t activations = leaves.size();
    std::vector<LateGradients> late = leaves_of_parameters();
    for (const LateGradients& l : late) leaves.append(l.leaf->local.begin(), l.leaf->local.end());
    for (const auto& tape : tapes_) leaves.push_back(tape->anchor);  // a remat inside f may have only this leaf
    keep_recorded(roots, gradients);
    Tensors result = roots.empty() ? Tensors(leaves.size()) : detail::gradients(roots, gradients, leaves);
    hand_over(std::move(late), result.begin() + static_cast<ptrdiff_t>(activations));
    give_conversions(kept);
    result.resize(activations);
    result.resize(inputs_.size());
    return result;
  }

 private:
  struct Argument {
    ArrayPtr array;
    bool of_parameter;  // true: a parameter or made from one; the second run takes it as it is
    bool activation;    // true: the second run takes it as a fresh leaf
  };

  SavedResults* kept() const { return kept_ ? &*kept_ : nullptr; }

  Arrays run_first() const {
    const SavingScope scope(kept());
    return f_(values());
  }
  // Restores the context of the first run: the body of a shard_map, the module.
  Arrays run_again(const Arrays& arrays) const {
    const ScopedValue manual(manual_axes(), manual_);
    const ScopedValue module(current_module_path(), module_);
    if (kept_) kept_->begin_replay();
    const SavingScope scope(kept());
    return f_(arrays);
  }

  void add_tape(const std::shared_ptr<TapeState>& tape) {
    if (std::find(tapes_.begin(), tapes_.end(), tape) != tapes_.end()) return;
    if (!tape->anchor.defined()) tape->anchor = at::zeros({}).requires_grad_(true);
    tapes_.push_back(tape);
  }

  // Returns true for a parameter of the tape whose gradients are being computed, since nested tapes do not mix.
  static bool is_sought(const ArrayImpl& parameter) {
    return is_tape_parameter(parameter) && parameter.details->tape.get() == differentiated_tape();
  }

  // Passes an activation as a new array, whose conversions disappear with the first run. The activation would keep
  // them.
  Arrays values() const {
    Arrays arrays;
    for (const Argument& a : arguments_)
      arrays.push_back(!a.array ? Array() : Array(a.activation ? with_tensors(a.array, a.array->local) : a.array));
    return arrays;
  }

  // Replaces a parameter that f returns by its leaf in the graph, and evaluates a lazy initializer, as in the first
  // run.
  static Arrays as_recorded(Arrays results) {
    for (Array& x : results) {
      if (x.is_absent()) continue;
      materialized(x, "remat");
      if (is_tape_parameter(*x.impl())) x = Array(convert(*x.impl(), x.impl(), x.impl()->type, {}));
    }
    return results;
  }

  Arrays again(Tensors& leaves) const {
    Arrays arrays;
    for (const Argument& a : arguments_) {
      if (!a.activation) {
        const bool open = a.of_parameter && is_tape_parameter(origin_of(*a.array));
        arrays.push_back(!a.array ? Array() : Array(open ? made_again(a.array) : a.array));
        continue;
      }
      Tensors fresh;
      for (const at::Tensor& t : a.array->local) fresh.push_back(make_leaf(t));
      leaves.append(fresh.begin(), fresh.end());
      arrays.push_back(Array(with_tensors(a.array, std::move(fresh))));
    }
    return arrays;
  }

  // Sets aside the parameters' conversions from the forward pass, whose graph must not be walked here.
  std::vector<std::list<Conversion>> take_conversions() const {
    std::vector<std::list<Conversion>> kept;
    for (const ArrayPtr& p : parameters_) kept.push_back(std::exchange(p->details->conversions, {}));
    return kept;
  }
  void give_conversions(const std::vector<std::list<Conversion>>& kept) const {
    for (size_t i = 0; i < kept.size(); ++i) parameters_[i]->details->conversions = kept[i];
  }

  // Keeps the results that depend on an argument with a gradient; others have no gradient.
  static void keep_recorded(Tensors& roots, Tensors& gradients) {
    Tensors kept_roots, kept_gradients;
    for (size_t i = 0; i < roots.size(); ++i)
      if (roots[i].requires_grad()) kept_roots.push_back(roots[i]), kept_gradients.push_back(gradients[i]);
    roots = std::move(kept_roots), gradients = std::move(kept_gradients);
  }

  // Returns the leaves that the second run has made so far. Leaves made later, in its backward pass, come from a remat
  // within f, which adds their gradients itself.
  std::vector<LateGradients> leaves_of_parameters() const {
    std::vector<LateGradients> late;
    for (const ArrayPtr& p : parameters_)
      if (is_sought(*p))
        for (const ArrayPtr& leaf : p->details->leaves) late.push_back({p, leaf, {}});
    return late;
  }

  static void hand_over(std::vector<LateGradients> late, Tensors::const_iterator next) {
    for (LateGradients& l : late) {
      const auto end = next + static_cast<ptrdiff_t>(l.leaf->local.size());
      l.gradients = Tensors(next, end);
      next = end;
      l.parameter->details->tape->late.push_back(std::move(l));
    }
  }

  friend Arrays tessera::remat(const Function&, const Arrays&, RematPolicy);

  // Returns true if a gradient can reach a result. A result without a mesh has values, so it depends on no abstract
  // argument.
  bool is_recorded(const Array& x) const {
    return !x.is_absent() && is_floating(x.dtype()) && (has_values_ || x.impl()->type->mesh);
  }
  Tensors recorded_tensors(const Arrays& arrays) const {
    Tensors tensors;
    for (const Array& x : arrays)
      if (is_recorded(x)) tensors.append(x.impl()->local.begin(), x.impl()->local.end());
    return tensors;
  }

  Function f_;
  ManualAxes manual_ = manual_axes();
  std::shared_ptr<const std::string> module_ = current_module_path();
  mutable std::optional<SavedResults> kept_;
  std::vector<Argument> arguments_;
  bool has_values_ = false;  // a differentiated argument is not on an abstract mesh
  std::vector<ArrayPtr> parameters_;
  std::vector<std::shared_ptr<TapeState>> tapes_;  // tapes of the parameters
  Tensors inputs_;
};

}  // namespace

std::vector<Array> remat(const Function& f, const std::vector<Array>& arrays, RematPolicy policy) {
  if (!at::GradMode::is_enabled() || policy == RematPolicy::everything_saveable) return f(arrays);
  if (is_nested()) return f(arrays);  // a second derivative needs the graph itself
  const auto again = std::make_shared<const Recomputation>(f, arrays, policy);
  if (again->inputs().empty()) return f(arrays);
  Arrays results = again->run();
  Tensors outputs = again->recorded_tensors(results);
  if (outputs.empty()) return results;
  record_function("remat", again->inputs(), outputs,
                  [again](Tensors gradients) { return again->backward(std::move(gradients)); });
  auto next = outputs.begin();
  for (Array& x : results)
    if (again->is_recorded(x))
      for (at::Tensor& t : x.impl()->local) t = *next++;
  return results;
}

}  // namespace tessera
