// Three ways to run a program: LibTorch's autograd, the library without a mesh, and on the program's mesh.
#include "tests/programs/evaluate.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "nn/checkpoint.h"
#include "nn/transformations.h"
#include "nn/tree.h"
#include "optim/formulas/clipping.h"
#include "optim/optimizer.h"
#include "optim/optimizer/optimizers.h"
#include "sharding/runtime/processes.h"
#include "tests/programs/interpreter.h"

namespace tessera::programs {

using testing::random_tensor;
using testing::whole;

Array collective(const Node& node, const Array& x) {
  const SpecEntry& axes = node.axes;
  switch (static_cast<Collective>(node.which)) {
    case Collective::psum:
      return psum(x, axes);
    case Collective::pmean:
      return pmean(x, axes);
    case Collective::pmax:
      return pmax(x, axes);
    case Collective::all_gather:
      return all_gather(x, axes, {.dim = node.dim, .tiled = true});
    case Collective::psum_scatter:
      return psum_scatter(x, axes, {.scatter_dim = node.dim, .tiled = true});
    case Collective::all_to_all:
      return all_to_all(x, axes, node.dim, node.other_dim, {.tiled = true});
    case Collective::ppermute: {
      std::vector<std::pair<int, int>> pairs;
      const int n = static_cast<int>(axis_size(axes));
      for (int i = 0; i < n; ++i) pairs.emplace_back(i, (i + 1) % n);
      return ppermute(x, axes, pairs);
    }
  }
  return {};
}

Array constrained(const Array& x, const PartitionSpec& spec, Mesh mesh) {
  return redistribute(x, NamedSharding(mesh, spec));
}

double difference(const at::Tensor& got, const at::Tensor& expected) {
  if (got.defined() != expected.defined()) return std::numeric_limits<double>::infinity();
  if (!got.defined()) return 0;
  if (got.sizes() != expected.sizes()) return std::numeric_limits<double>::infinity();
  if (got.numel() == 0) return 0;
  const at::Tensor a = got.detach().to(at::kDouble), b = expected.detach().to(at::kDouble);
  const at::Tensor same = (a == b).logical_or(at::isnan(a).logical_and(at::isnan(b)));
  const at::Tensor finite = at::where(at::isfinite(b), b.abs(), at::zeros_like(b));
  const at::Tensor error = at::where(same, at::zeros_like(a), (a - b).abs());
  const double worst = error.max().item<double>() / (1 + finite.max().item<double>());
  return worst == worst ? worst : std::numeric_limits<double>::infinity();
}

namespace {

struct Layer {
  std::vector<nn::Param> w;
};
struct Model {
  std::vector<Layer> layers;
};
struct Batch {
  std::vector<Array> x;
};

bool is_parameter(const Leaf& leaf) { return leaf.role == Leaf::parameter || leaf.role == Leaf::frozen; }

// Returns whether each element is a short binary fraction. Sums of short binary fractions are exact in any order.
at::Tensor is_short(const at::Tensor& x) {
  const at::Tensor scaled = x * 4096;
  return (scaled == at::round(scaled)).logical_and(x.abs() < 1e6);
}

// Adds noise. It is equal for all tensors of one shape, so that remat's recomputation gives the same values.
at::Tensor touched(const at::Tensor& x, Noise noise) {
  if (!x.is_floating_point() || noise == Noise::none) return x;
  const at::Tensor wave = random_tensor(x.sizes().vec(), 1000);
  if (noise == Noise::kinks) return x + wave * 1e-7;
  return x + at::where(is_short(x.detach()), at::zeros_like(x), x.detach() * wave * 1e-13);
}
Array touched(const Array& x, Noise noise) {
  if (noise != Noise::kinks) return x;
  return x + from_tensor(random_tensor(x.shape(), 1000) * 1e-7);
}

// Computes the program's loss and results for these leaves. Every third step leaves the last result out of the loss.
template <class V>
V loss_of(const Program& program, const std::vector<V>& leaves, Context<V>& context, std::vector<V>* results,
          int step) {
  std::vector<Lanes<V>> arguments;
  for (const V& leaf : leaves) arguments.push_back({leaf});
  const std::vector<Lanes<V>> given = run(program.body, std::move(arguments), context);
  const size_t used = step % 3 == 1 && given.size() > 1 ? given.size() - 1 : given.size();
  std::optional<V> loss;
  for (size_t i = 0; i < used; ++i) {
    const at::Tensor weight = random_tensor(shape_of(given[i][0]), program.weights[i]);
    V term = [&] {
      if constexpr (std::is_same_v<V, Array>)
        return sum(given[i][0] * from_tensor(weight));
      else
        return (given[i][0] * weight).sum();
    }();
    loss = loss ? *loss + term : term;
    if (results) results->push_back(given[i][0]);
  }
  return *loss;
}

}  // namespace

Outcome by_libtorch(const Program& program, Noise noise, int step) {
  const at::AutoGradMode on(true);
  Outcome outcome;
  std::vector<at::Tensor> given, trained;
  for (const Leaf& leaf : program.leaves) {
    const bool wanted = leaf.role == Leaf::parameter && leaf.value.is_floating_point();
    const at::Tensor value = noise == Noise::kinks ? touched(leaf.value, noise) : leaf.value;
    given.push_back(value.clone().requires_grad_(wanted));
    if (wanted) trained.push_back(given.back());
  }
  Context<at::Tensor> context{.grid = Grid(program.axes)};
  if (noise != Noise::none) context.touch = [noise](const at::Tensor& x) { return touched(x, noise); };
  at::Tensor loss;
  if (step < 0) step = program.steps - 1;
  std::vector<at::Tensor> results;
  for (int i = 0; i < program.num_micro_batches; ++i) {
    std::vector<at::Tensor> leaves = given;
    for (size_t l = 0; l < leaves.size(); ++l)
      if (i > 0 && program.leaves[l].role == Leaf::batch) leaves[l] = program.leaves[l].more[i - 1];
    const at::Tensor part =
        loss_of(program, leaves, context, program.outer == Outer::value_and_grad ? &results : nullptr, step);
    loss = loss.defined() ? loss + part : part;
  }
  loss = loss / program.num_micro_batches;
  outcome.values.push_back(loss.detach());
  for (const at::Tensor& r : results) outcome.values.push_back(r.detach());
  std::vector<at::Tensor> gradients;
  if (loss.requires_grad()) gradients = torch::autograd::grad({loss}, trained, {}, false, false, true);
  gradients.resize(trained.size());
  size_t next = 0;
  for (size_t l = 0; l < given.size(); ++l) {
    at::Tensor& g = outcome.gradients.emplace_back();
    if (!given[l].requires_grad()) continue;
    g = gradients[next].defined() ? gradients[next] : at::zeros_like(given[l]);
    ++next;
  }
  return outcome;
}

namespace {

// Prefetched gathers are recorded in another order, so lines are compared as a set.
std::string sorted(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}", fmt::join(lines, ""));
}

// A folder of this process, deleted with its contents.
struct Scratch {
  std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("programs_{}", getpid());
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

// Runs a program with the library: without a mesh, on its mesh, or on an abstract mesh.
class Run {
 public:
  Run(const Program& program, Where where, const Observer& observe, Noise noise = Noise::none)
      : program_(program), context_{.grid = Grid(program.axes)}, noise_(noise) {
    if (noise == Noise::kinks) context_.touch = [](const Array& x) { return touched(x, Noise::kinks); };
    if (where != Where::unplaced) context_.mesh = program.mesh(where == Where::abstract_mesh);
    options_ = program.options;
    if (where == Where::unplaced) options_.shard_gradients_over.clear();
    if (observe)
      context_.observe = [observe](const Node& node, const std::vector<Lanes<Array>>& operands, const auto& around) {
        std::vector<Array> arrays;
        for (const Lanes<Array>& lanes : operands) arrays.push_back(lanes[0]);
        observe(node, arrays, around);
      };
    place();
  }

  Outcome operator()() {
    if (program_.outer == Outer::train)
      train();
    else
      for (int step = 0; step < program_.steps; ++step) {
        std::optional<CommLedger> ledger(std::in_place);
        const Model gradient = differentiate(step, step + 1 == program_.steps);
        outcome_.ledger += sorted(testing::ledger_text(*ledger));
        ledger.reset();
        keep_gradients(gradient);
      }
    return std::move(outcome_);
  }

 private:
  Array placed(const at::Tensor& value, const Leaf& leaf) const {
    at::Tensor changed = noise_ == Noise::kinks ? touched(value, noise_) : value;
    if (noise_ == Noise::rounding && value.is_floating_point())
      changed = value * (1 + 1e-11 * random_tensor(value.sizes().vec(), 7));
    const Array x = from_tensor(changed);
    return context_.mesh && leaf.spec ? device_put(x, NamedSharding(*context_.mesh, *leaf.spec)) : x;
  }

  // Returns the rows of all micro-batches in the order of accumulate_gradients: a micro-batch takes an equal fraction
  // of each device's rows.
  at::Tensor all_rows(const Leaf& leaf, int64_t blocks) const {
    if (program_.num_micro_batches == 1) return leaf.value;
    std::vector<at::Tensor> rows;
    const int64_t size = leaf.value.size(0) / blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      rows.push_back(leaf.value.narrow(0, b * size, size));
      for (const at::Tensor& more : leaf.more) rows.push_back(more.narrow(0, b * size, size));
    }
    return at::cat(rows);
  }

  void place() {
    model_ = {};
    batch_ = {};
    others_.clear();
    int64_t blocks = 1;
    for (const Leaf& leaf : program_.leaves)
      if (context_.mesh && leaf.role == Leaf::batch && leaf.spec && !leaf.spec->entries().empty())
        blocks = std::lcm(blocks, int64_t{context_.grid.count(leaf.spec->entries()[0].axes())});
    for (const Leaf& leaf : program_.leaves) {
      if (is_parameter(leaf)) {
        if (model_.layers.size() <= static_cast<size_t>(leaf.layer)) model_.layers.resize(leaf.layer + 1);
        model_.layers[leaf.layer].w.push_back({placed(leaf.value, leaf), {}});
      } else if (leaf.role == Leaf::batch) {
        batch_.x.push_back(placed(all_rows(leaf, blocks), leaf));
      } else {
        others_.push_back(placed(leaf.value, leaf));
      }
    }
  }

  std::vector<Array> leaves(const Model& model, const Batch& batch) const {
    std::vector<Array> all;
    std::vector<size_t> next(model.layers.size());
    size_t rows = 0, other = 0;
    for (const Leaf& leaf : program_.leaves)
      all.push_back(is_parameter(leaf)         ? model.layers[leaf.layer].w[next[leaf.layer]++].value
                    : leaf.role == Leaf::batch ? batch.x[rows++]
                                               : others_[other++]);
    return all;
  }

  nn::Filter filter() const {
    std::set<std::string> frozen;
    std::vector<int> next(model_.layers.size());
    for (const Leaf& leaf : program_.leaves)
      if (is_parameter(leaf)) {
        const std::string path = fmt::format("layers.{}.w.{}", leaf.layer, next[leaf.layer]++);
        if (leaf.role == Leaf::frozen) frozen.insert(path);
      }
    return [frozen](const std::string& path, const nn::Leaf& leaf) {
      return !frozen.contains(path) && nn::is_trainable(leaf);
    };
  }

  // Loss and results are added to the outcome if `is_last`.
  Model differentiate(int step, bool is_last) {
    const auto loss = [&, step](const Model& model, const Batch& batch) {
      return loss_of(program_, leaves(model, batch), context_, static_cast<std::vector<Array>*>(nullptr), step);
    };
    const Model& model = model_;
    if (program_.outer == Outer::accumulate) {
      auto [value, gradient] =
          nn::accumulate_gradients(loss, program_.num_micro_batches, filter(), options_)(model, batch_);
      add(value);
      return gradient;
    }
    if (program_.outer == Outer::pipeline) {
      auto [value, gradient] =
          nn::pipeline(loss, {.num_micro_batches = program_.num_micro_batches}, filter(), options_)(model, batch_);
      add(value);
      return gradient;
    }
    const auto with_results = [&, step](const Model& model, const Batch& batch) {
      std::vector<Array> results;
      const Array value = loss_of(program_, leaves(model, batch), context_, &results, step);
      return std::pair(value, results);
    };
    auto [value, gradient] = nn::value_and_grad(with_results, filter(), options_)(model, batch_);
    if (is_last || program_.outer == Outer::train) add(value.first);
    if (is_last && program_.outer != Outer::train)
      for (const Array& r : value.second) add(r);
    return gradient;
  }

  bool has_data() const { return !context_.mesh || !context_.mesh->is_abstract(); }

  void add(const Array& x) {
    outcome_.values.push_back(has_data() ? whole(x).clone() : at::Tensor());
    outcome_.types.push_back(x.type_string());
  }

  void keep_gradients(const Model& gradient) {
    outcome_.gradients.clear();
    std::vector<size_t> next(gradient.layers.size());
    for (const Leaf& leaf : program_.leaves) {
      at::Tensor& kept = outcome_.gradients.emplace_back();
      if (!is_parameter(leaf)) continue;
      const Array& g = gradient.layers[leaf.layer].w[next[leaf.layer]++].value;
      if (g.is_absent()) continue;
      outcome_.types.push_back(g.type_string());
      if (has_data()) kept = whole(reduce_partial_sum(g)).clone();
      if (leaf.spec && context_.mesh && options_.reduce && options_.shard_gradients_over.empty() &&
          program_.outer != Outer::train)
        check_type(g, leaf);
    }
  }

  // Throws unless a reduced gradient has the type of its parameter: shape, element type and sharding.
  void check_type(const Array& gradient, const Leaf& leaf) const {
    const Array like =
        device_put(from_tensor(leaf.value), NamedSharding(*context_.mesh, PartitionSpec(leaf.spec->entries())));
    if (gradient.type_string() != like.type_string())
      throw std::logic_error("the gradient is " + gradient.type_string() + ", the parameter " + like.type_string());
  }

  template <class Transform>
  void train_with(const Transform& transform) {
    const auto made = [&] {
      const optim::OptimizerOptions options{.shard_state_over =
                                                context_.mesh ? program_.shard_state_over : std::vector<std::string>()};
      return optim::Optimizer(model_, transform, options);
    };
    const Scratch folder;
    auto optimizer = made();
    for (int step = 0; step < program_.steps; ++step) {
      if (step > 0 && step + 1 == program_.steps && context_.mesh && !program_.restored_axes.empty()) {
        nn::save(folder.path, step, nn::named_state("model", model_, "optimizer", optimizer));
        context_.mesh = make_mesh(program_.restored_axes, {.private_replicas = !program_.private_replicas});
        context_.grid = Grid(program_.restored_axes);
        place();
        optimizer = made();
        nn::restore(folder.path, nn::named_state("model", model_, "optimizer", optimizer));
      }
      optimizer.update(model_, differentiate(step, true));
    }
    for (const Layer& layer : model_.layers)
      for (const nn::Param& w : layer.w) add(w.value);
  }

  void train() {
    if (program_.optimizer == 0)
      train_with(optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 0.01})));
    else
      train_with(optim::sgd({.learning_rate = 0.01, .momentum = 0.9}));
  }

  const Program& program_;
  Context<Array> context_;
  Noise noise_;
  GradientOptions options_;
  Model model_;
  Batch batch_;
  std::vector<Array> others_;
  Outcome outcome_;
};

bool same_bits(const Outcome& a, const Outcome& b) {
  const auto same = [](const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y) {
    bool equal = x.size() == y.size();
    for (size_t i = 0; equal && i < x.size(); ++i)
      equal = x[i].defined() == y[i].defined() && (!x[i].defined() || at::allclose(x[i], y[i], 0, 0, true));
    return equal;
  };
  return same(a.values, b.values) && same(a.gradients, b.gradients);
}

std::string compared(const char* way, const char* other, const Program& program, const Outcome& got,
                     const Outcome& expected) {
  std::string wrong;
  const auto list = [&](const char* what, const auto& a, const auto& b) {
    if (a.size() != b.size()) wrong += fmt::format("{}: {} {}s, {} has {}\n", way, a.size(), what, other, b.size());
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (const double e = difference(a[i], b[i]); e > program.tolerance)
        wrong += fmt::format("{}: {} {} is off by {:.1e} from {}\n", way, what, i, e, other);
  };
  list("value", got.values, expected.values);
  list("gradient", got.gradients, expected.gradients);
  return wrong;
}

// At a kink the library returns JAX's gradient, which may differ from LibTorch's. Next to the kink both must agree.
bool agrees_near_kinks(const Program& program) {
  const Outcome ours = Run(program, Where::unplaced, {}, Noise::kinks)();
  Program tolerant = program;
  tolerant.tolerance = std::max(program.tolerance, 1e-6);
  return compared("", "", tolerant, ours, by_libtorch(program, Noise::kinks)).empty();
}

bool is_finite(const Outcome& outcome) {
  for (const auto* tensors : {&outcome.values, &outcome.gradients})
    for (const at::Tensor& t : *tensors)
      if (t.defined() && !at::isfinite(t).all().item<bool>()) return false;
  return true;
}

// Returns whether the gradient without a mesh jumps at these values. It does for the maximum of equal numbers, and for
// the norm of zeros, where it is NaN. Rounding decides whether numbers are exactly equal.
bool has_kink(const Program& program, const Outcome& plain) {
  Program tolerant = program;
  tolerant.tolerance = std::max(program.tolerance, 1e-4);
  return !compared("", "", tolerant, plain, Run(program, Where::unplaced, {}, Noise::kinks)()).empty();
}

// Returns whether the mesh and the run without a mesh agree next to a kink.
bool meshes_agree_near_kinks(const Program& program) {
  Program tolerant = program;
  tolerant.tolerance = std::max(program.tolerance, 1e-6);
  return compared("", "", tolerant, Run(program, Where::mesh, {}, Noise::kinks)(),
                  Run(program, Where::unplaced, {}, Noise::kinks)())
      .empty();
}

// Returns a ledger without the operands of attention that its backward pass gathers again: only those that the kernel
// keeps for it. A device may have another kernel than an abstract mesh.
std::string comparable(const std::string& ledger) {
  if (!std::getenv("TESSERA_DEVICE")) return ledger;
  std::string kept;
  std::istringstream lines(ledger);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("dot_product_attention all_gather") || !line.ends_with("backward")) kept += line + "\n";
  return kept;
}

std::string compared_types(const Program& program, const Outcome& abstract, const Outcome& real) {
  // Documented limits of an abstract mesh: differentiated arrays must be placed on it, and a slice's start must be
  // known.
  for (const char* limit : {"is not on a mesh", "holds no values"})
    if (abstract.error.find(limit) != std::string::npos) return "";
  if (!abstract.error.empty()) return "abstract mesh: " + abstract.error + "\n";
  std::string wrong;
  if (abstract.types != real.types)
    wrong += fmt::format("abstract mesh: types {}, on devices {}\n", fmt::join(abstract.types, " "),
                         fmt::join(real.types, " "));
  // Ledgers may differ in three cases. On an abstract mesh gathers are prefetched, also for a step that does not need
  // them. An argument that remat's function does not read has a gradient of zeros there, and no gradient on devices.
  // `comparable` has the third case.
  bool has_remat = false;
  for_each_node(program.body, [&](const Node& node, const auto&) { has_remat |= node.kind == Kind::remat; });
  if (program.steps == 1 && !has_remat && comparable(abstract.ledger) != comparable(real.ledger))
    wrong += "abstract mesh: another ledger\n" + abstract.ledger + "on devices:\n" + real.ledger;
  return wrong;
}

}  // namespace

Outcome by_tessera(const Program& program, Where where, const Observer& observe) {
  Outcome failed;
  try {
    return Run(program, where, observe)();
  } catch (const Error& error) {
    failed.error_kind = static_cast<int>(error.kind());
    failed.error = error.what();
  } catch (const std::exception& error) {
    failed.error_kind = -2;
    failed.error = error.what();
  }
  return failed;
}

std::string check(const Program& program, const Observer& observe) {
  const Outcome plain = by_tessera(program, Where::unplaced);
  const Outcome real = by_tessera(program, Where::mesh, observe);
  if (plain.error_kind != real.error_kind)
    return fmt::format("without a mesh: {}\non the mesh: {}\n", plain.error.empty() ? "no error" : plain.error,
                       real.error.empty() ? "no error" : real.error);
  // A documented limit: some operations have no second derivative.
  if (plain.error_kind == static_cast<int>(ErrorKind::no_gradient)) return "";
  if (!plain.error.empty()) return "LibTorch computes it: " + plain.error + "\n";
  std::string wrong = compared("mesh", "the program without a mesh", program, real, plain);
  if (!wrong.empty() && (is_finite(plain) != is_finite(real) || has_kink(program, plain)) &&
      meshes_agree_near_kinks(program))
    wrong.clear();
  if (!program.special && program.outer != Outer::train)
    if (const std::string other = compared("without a mesh", "LibTorch", program, plain, by_libtorch(program));
        !other.empty())
      wrong += agrees_near_kinks(program) ? "" : other;
  if (!same_bits(by_tessera(program, Where::mesh), real)) wrong += "a second run has other bits\n";
  const bool is_placed =
      std::all_of(program.leaves.begin(), program.leaves.end(), [](const Leaf& l) { return l.spec; });
  if (process_count() == 1 && program.outer != Outer::train && is_placed)
    wrong += compared_types(program, by_tessera(program, Where::abstract_mesh), real);
  return wrong;
}

bool is_well_conditioned(const Program& program) try {
  // The library throws for a loss that depends on no parameter only if it can detect this, so such programs are not
  // compared.
  for (int step = 0; step < std::min(program.steps, 2); ++step) {
    double size = 0;
    for (const at::Tensor& g : by_libtorch(program, Noise::none, step).gradients)
      if (g.defined() && g.numel()) size += g.abs().sum().item<double>();
    if (size == 0) return false;
  }
  const Outcome plain = by_libtorch(program), noisy = by_libtorch(program, Noise::rounding);
  const auto close = [&](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (difference(a[i], b[i]) > 1e-10) return false;
      if (!program.special && a[i].defined() &&
          !(at::isfinite(a[i]).all().item<bool>() && a[i].abs().max().item<double>() < 1e6))
        return false;
    }
    return true;
  };
  if (!close(plain.values, noisy.values) || !close(plain.gradients, noisy.gradients)) return false;
  if (program.outer != Outer::train) return true;
  // Later steps have other parameters, so noise must not change the complete training either.
  const Outcome trained = Run(program, Where::unplaced, {})(),
                other = Run(program, Where::unplaced, {}, Noise::rounding)();
  for (size_t i = 0; i < trained.values.size(); ++i)
    if (difference(trained.values[i], other.values[i]) > 1e-7) return false;
  return true;
} catch (const std::exception&) {
  return false;
}

}  // namespace tessera::programs
