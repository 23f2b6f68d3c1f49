// Draws programs node by node. LibTorch evaluates each node immediately; a node for which it throws is dropped.
#include "tests/programs/draw.h"

#include <array>
#include <map>
#include <random>

#include "sharding/runtime/processes.h"
#include "tests/programs/evaluate.h"
#include "tests/programs/interpreter.h"

namespace tessera::programs {

using testing::random_tensor;
using Tensors = std::vector<at::Tensor>;

const std::vector<Case>& cases() {
  static const auto& all = *new std::vector<Case>(testing::all_cases());
  return all;
}

namespace {

// Replacements for the sizes of the cases' inputs, one per program. The first one changes nothing.
const std::vector<std::map<int64_t, int64_t>> size_maps = {
    {}, {{2, 3}, {4, 5}, {8, 7}}, {{2, 1}, {4, 3}, {8, 6}}, {{4, 1}}, {{8, 1}}, {{2, 0}}, {{4, 6}, {8, 5}}};

// Repeats the elements along dimensions that became longer; indices stay below the smallest size.
at::Tensor resized(const at::Tensor& t, const std::map<int64_t, int64_t>& sizes) {
  at::Tensor result = t;
  int64_t least = 1 << 20;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (const auto found = sizes.find(t.size(d)); found != sizes.end())
      result = result.index_select(d, at::arange(found->second).remainder(t.size(d)));
  for (const auto& [from, to] : sizes) least = std::min(least, std::max<int64_t>(to, 1));
  const bool is_index = !t.is_floating_point() && t.scalar_type() != at::kBool;
  return is_index && !sizes.empty() ? at::fmod(result, least) : result;
}

// Returns the inputs of a case in these sizes; empty if the case does not accept them.
const Tensors& inputs_of(int which, int sizes) {
  static auto& known = *new std::map<std::pair<int, int>, Tensors>;
  const auto [found, is_new] = known.try_emplace({which, sizes});
  if (!is_new) return found->second;
  const Case& one = cases()[which];
  Tensors inputs;
  std::vector<Array> arrays;
  for (const at::Tensor& t : one.function.inputs) {
    inputs.push_back(resized(t, size_maps[sizes]).contiguous());
    arrays.push_back(from_tensor(inputs.back()));
  }
  try {
    // A case whose code contains its sizes may compute a wrong result for other sizes instead of throwing.
    if (sizes == 0 || difference(testing::whole(called(one, arrays)), called(one, inputs)) < 1e-6)
      found->second = inputs;
  } catch (const std::exception&) {
  }
  return found->second;
}

struct Scope {
  Node* node = nullptr;  // the node whose body is drawn; null: the program
  Body* body = nullptr;
  Scope* parent = nullptr;
  std::vector<Lanes<at::Tensor>> arguments = {}, results = {};  // values; an id is -1 - argument, or a result
  std::vector<uint32_t> vary_arguments = {}, vary_results = {};
  bool in_shard_map = false;
  int depth = 0;

  const Lanes<at::Tensor>& value(int id) const { return id < 0 ? arguments[-1 - id] : results[id]; }
  uint32_t vary(int id) const { return id < 0 ? vary_arguments[-1 - id] : vary_results[id]; }
};

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : random_(seed) { program_.seed = seed; }

  Program operator()() {
    draw_mesh();
    Scope scope{.body = &program_.body};
    sizes_ = chance(0.6) ? 0 : below(static_cast<int>(size_maps.size()));
    pads_ = sizes_ != 0 || chance(0.3);
    program_.special = chance(0.04);
    special_ = static_cast<size_t>(below(3));
    if (chance(0.25)) program_.outer = chance(0.6) ? Outer::accumulate : Outer::pipeline;
    if (chance(0.1)) program_.outer = Outer::train;
    if (program_.outer == Outer::accumulate || program_.outer == Outer::pipeline) {
      program_.num_micro_batches = 1 + below(3);
      if (chance(0.7)) batch_axes_ = some_axes(2);
    }
    const int wanted = chance(0.75) ? 3 + below(7) : 3 + below(30);
    for (int tries = 0; tries < 3 * wanted && count_of_nodes(program_) < wanted; ++tries) draw_node(scope);
    draw_rest(scope);
    finish(program_.body);
    return program_;
  }

 private:
  int below(int n) { return n > 0 ? static_cast<int>(random_() % static_cast<uint64_t>(n)) : 0; }
  bool chance(double p) { return static_cast<double>(random_() % 1000000) < p * 1e6; }

  void draw_mesh() {
    static const std::vector<std::vector<int>> shapes = {{1},    {2},       {2},       {3},    {4},    {8},
                                                         {2, 2}, {2, 2},    {2, 3},    {4, 2}, {2, 4}, {1, 2},
                                                         {2, 1}, {2, 2, 2}, {2, 1, 2}, {1, 4}};
    const auto& shape = shapes[below(static_cast<int>(shapes.size()))];
    const char* names[] = {"a", "b", "c"};
    // Every process must have the same number of devices.
    const int processes = process_count();
    for (size_t i = 0; i < shape.size(); ++i) program_.axes.push_back({names[i], shape[i]});
    if (Grid(program_.axes).size() % processes) program_.axes = {{"a", processes}, {"b", 2}};
    program_.private_replicas = chance(0.4);
  }

  // Returns one to n of the mesh's axes, in random order.
  std::vector<std::string> some_axes(int n) {
    std::vector<std::string> names;
    for (const MeshAxis& axis : program_.axes) names.push_back(axis.name);
    std::shuffle(names.begin(), names.end(), random_);
    names.resize(std::min<size_t>(names.size(), 1 + below(n)));
    return names;
  }

  // Draws a sharding of this shape. Each axis is unused, on a dimension, or (with `sets`) unreduced or reduced.
  PartitionSpec draw_spec(const Shape& shape, bool sets, bool pads) {
    const Grid grid(program_.axes);
    std::vector<std::vector<std::string>> dims(shape.size());
    std::vector<std::string> unreduced, reduced;
    for (const std::string& name : some_axes(3)) {
      const int choice = below(static_cast<int>(shape.size()) + (sets ? 3 : 1));
      if (choice < static_cast<int>(shape.size()))
        dims[choice].push_back(name);
      else if (sets && choice == static_cast<int>(shape.size()) + 1)
        unreduced.push_back(name);
      else if (sets && choice == static_cast<int>(shape.size()) + 2)
        reduced.push_back(name);
    }
    std::vector<SpecEntry> entries;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!pads && shape[d] % grid.count(dims[d])) dims[d].clear();
      entries.emplace_back(dims[d], shape[d] % grid.count(dims[d]) ? Uneven::pad : Uneven::error);
    }
    return PartitionSpec(std::move(entries)).unreduced(unreduced).reduced(reduced);
  }

  // ---- leaves

  // Sets elements of t to inf, -inf or NaN, the same value in the complete program: the results of inf - inf and 0 *
  // inf depend on the order of operations.
  at::Tensor special(at::Tensor t) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    const double value = std::array{inf, -inf, std::numeric_limits<double>::quiet_NaN()}[special_];
    t = t.clone();
    for (int i = 0; i < 2 && t.numel(); ++i)
      t.view({-1}).index_put_({at::tensor(below(static_cast<int>(t.numel())))}, value);
    return t;
  }

  // Adds a leaf of the program, and returns its id in this scope.
  int add_leaf(Scope& scope, at::Tensor value) {
    if (scope.parent && scope.node->kind == Kind::shard_map) return import(scope, add_wide_leaf(scope, value));
    if (scope.parent) return import(scope, add_leaf(*scope.parent, value));
    Leaf leaf{.role = Leaf::input, .value = value};
    if (value.is_floating_point()) {
      const int role = below(100);
      leaf.role = role < 50 ? Leaf::parameter : role < 58 ? Leaf::frozen : Leaf::input;
      if (chance(0.15) && !has_domain(value)) leaf.value = at::round(value * 2) / 2;  // ties, zeros
      if (program_.special && chance(0.4)) leaf.value = special(value);
      leaf.layer = below(3);
      make_batch(leaf);
    }
    if (!chance(0.12)) leaf.spec = draw_spec(value.sizes().vec(), false, pads_);
    if (leaf.role == Leaf::batch && leaf.spec) {
      std::vector<SpecEntry> entries = leaf.spec->entries();
      entries[0] = SpecEntry(batch_axes_);
      for (size_t d = 1; d < entries.size(); ++d)
        for (const std::string& name : batch_axes_)
          if (std::find(entries[d].axes().begin(), entries[d].axes().end(), name) != entries[d].axes().end())
            entries[d] = SpecEntry();
      leaf.spec = PartitionSpec(entries);
    }
    program_.leaves.push_back(leaf);
    return add_argument(scope, {leaf.value}, 0);
  }

  void make_batch(Leaf& leaf) {
    const at::Tensor& value = leaf.value;
    const int64_t blocks = Grid(program_.axes).count(batch_axes_);
    if (program_.num_micro_batches < 2 || leaf.role != Leaf::input || !value.dim() || !value.numel() ||
        value.size(0) % blocks || program_.special)
      return;
    leaf.role = Leaf::batch;
    for (int i = 1; i < program_.num_micro_batches; ++i) leaf.more.push_back(rolled(value, i));
  }

  static at::Tensor rolled(const at::Tensor& t, int by) {
    return t.reshape({-1}).roll(by).reshape(t.sizes()).contiguous();
  }

  static int add_argument(Scope& scope, Lanes<at::Tensor> value, uint32_t vary) {
    ++scope.body->arguments;
    scope.arguments.push_back(std::move(value));
    scope.vary_arguments.push_back(vary);
    return -static_cast<int>(scope.arguments.size());
  }

  // Makes a value of the parent scope an argument of this scope.
  int import(Scope& scope, int id) {
    scope.node->operands.push_back(id);
    Lanes<at::Tensor> value = scope.parent->value(id);
    uint32_t vary = scope.parent->vary(id);
    if (scope.node->kind == Kind::shard_map) {
      const PartitionSpec spec = wide_ ? *wide_ : draw_spec(shape_of(value[0]), false, false);
      wide_.reset();
      const Grid grid(program_.axes);
      value = blocks_of(value[0], spec, grid);
      for (const SpecEntry& entry : spec.entries()) vary |= grid.set(entry.axes());
      scope.node->in_specs.push_back(spec);
    }
    return add_argument(scope, std::move(value), vary);
  }

  // Adds a leaf outside a shard_map. Each of its blocks has the shape and the elements of `block`, rotated differently.
  int add_wide_leaf(Scope& scope, const at::Tensor& block) {
    const Grid grid(program_.axes);
    std::vector<std::vector<std::string>> dims(block.dim());
    for (const std::string& name : some_axes(2))
      if (block.dim() && chance(0.6)) dims[below(static_cast<int>(block.dim()))].push_back(name);
    at::Tensor wide = block;
    std::vector<SpecEntry> entries;
    for (size_t d = 0; d < dims.size(); ++d) {
      Tensors parts;
      for (int i = 0; i < grid.count(dims[d]); ++i) parts.push_back(i ? rolled(wide, i) : wide);
      wide = at::cat(parts, static_cast<int64_t>(d));
      entries.emplace_back(dims[d]);
    }
    const int id = add_leaf(*scope.parent, wide);
    wide_ = PartitionSpec(std::move(entries));
    return id;
  }

  // ---- nodes

  // Adds `node` if it can be computed, and returns the id of its first result; else nullopt.
  std::optional<int> add(Scope& scope, Node node, uint32_t vary) {
    std::vector<uint32_t> varies(node.num_results(), vary);
    if (node.kind == Kind::shard_map) varies.assign(node.num_results(), 0);
    Body alone{.arguments = static_cast<int>(node.operands.size())};
    std::vector<Lanes<at::Tensor>> operands;
    for (const int id : node.operands) operands.push_back(scope.value(id));
    alone.nodes.push_back(node);
    std::iota(alone.nodes[0].operands.begin(), alone.nodes[0].operands.end(), 0);
    for (int i = 0; i < node.num_results(); ++i) alone.results.push_back(alone.arguments + i);
    std::vector<Lanes<at::Tensor>> results;
    try {
      const at::AutoGradMode off(false);
      Context<at::Tensor> context{.grid = Grid(program_.axes)};
      bool is_finite = true;  // for all values: remat passes zeros back to unused results, and 0 * inf is NaN
      context.touch = [&](const at::Tensor& t) {
        is_finite = is_finite && at::isfinite(t).all().item<bool>();
        return t;
      };
      results = run(alone, operands, context);
      if (!is_finite && !program_.special) return std::nullopt;
      for (const Lanes<at::Tensor>& lanes : results)
        for (const at::Tensor& t : lanes)
          if (!is_usable(t)) return std::nullopt;
    } catch (const std::exception&) {
      return std::nullopt;
    }
    scope.body->nodes.push_back(std::move(node));
    for (size_t i = 0; i < results.size(); ++i)
      scope.results.push_back(results[i]), scope.vary_results.push_back(varies[i]);
    return static_cast<int>(scope.results.size() - results.size());
  }

  bool is_usable(const at::Tensor& t) const {
    if (t.scalar_type() != at::kDouble || t.numel() > 4096) return false;
    return program_.special || t.numel() == 0 ||
           (at::isfinite(t).all().item<bool>() && t.abs().max().item<double>() < 1e6);
  }

  std::optional<int> add_unary(Scope& scope, Kind kind, int id, Node node = {}) {
    node.kind = kind;
    node.operands = {id};
    return add(scope, std::move(node), scope.vary(id));
  }

  // Scales a value down by a power of two if it has an element of 20 or more in absolute value.
  std::optional<int> tamed(Scope& scope, std::optional<int> id) {
    if (!id || program_.special) return id;
    double largest = 0;
    for (const at::Tensor& t : scope.value(*id))
      if (t.numel()) largest = std::max(largest, t.abs().max().item<double>());
    if (largest < 20) return id;
    return add_unary(scope, Kind::scale, *id, {.hi = std::exp2(-std::ceil(std::log2(largest)))});
  }

  std::vector<int> all_values(const Scope& scope) const {
    std::vector<int> ids;
    for (size_t i = 0; i < scope.arguments.size(); ++i)
      if (scope.arguments[i][0].is_floating_point()) ids.push_back(-1 - static_cast<int>(i));
    for (size_t i = 0; i < scope.results.size(); ++i) ids.push_back(static_cast<int>(i));
    return ids;
  }

  // Returns the id of a random value of this scope, usually one of the last three.
  std::optional<int> some_value(const Scope& scope) {
    const std::vector<int> ids = all_values(scope);
    if (ids.empty()) return std::nullopt;
    const int n = static_cast<int>(ids.size());
    return ids[chance(0.6) ? n - 1 - below(std::min(n, 3)) : below(n)];
  }

  // Returns an operand for an input of a case: an existing value, made to fit, or a new leaf.
  std::optional<int> operand_like(Scope& scope, const at::Tensor& input) {
    if (!input.is_floating_point()) return add_leaf(scope, input);
    std::optional<int> id = chance(0.7) ? some_value(scope) : std::nullopt;
    if (!id) return add_leaf(scope, input);
    std::vector<int> same;
    for (const int other : all_values(scope))
      if (scope.value(other)[0].sizes() == input.sizes()) same.push_back(other);
    if (!same.empty() && chance(0.7)) id = same[below(static_cast<int>(same.size()))];
    if (scope.value(*id)[0].numel() == 0 && input.numel()) return add_leaf(scope, input);
    if (scope.value(*id)[0].sizes() != input.sizes())
      id = add_unary(scope, Kind::fit, *id, {.shape = input.sizes().vec()});
    if (!id || !input.numel()) return id;
    if (has_domain(input))
      id = add_unary(scope, Kind::squash, *id, {.lo = input.min().item<double>(), .hi = input.max().item<double>()});
    return id;
  }

  // Returns whether the input suggests that the case's function is defined only for positive numbers, or only in (-1,
  // 1).
  static bool has_domain(const at::Tensor& input) {
    if (!input.numel()) return false;
    const double lo = input.min().item<double>(), hi = input.max().item<double>();
    return lo > 0 || (lo > -1 && hi < 1);
  }

  // Returns true if the case's results at infinities and NaN depend on how the operand is split:
  //   prod, cumprod: on how LibTorch divides the product
  //   dot_product_attention: on the blocks that a mask skips
  //   elu, celu, selu: on the vector length
  //   var: on cancellation
  static bool splits_special_values(const Case& one) {
    static const char* const operations[] = {"prod", "cumprod", "dot_product_attention", "elu", "celu", "selu", "var"};
    return std::any_of(std::begin(operations), std::end(operations),
                       [&](const char* name) { return one.operations[0] == name; });
  }

  void draw_call(Scope& scope) {
    const int which = below(static_cast<int>(cases().size()));
    const Tensors& inputs = inputs_of(which, sizes_);
    if (inputs.empty() || (program_.special && splits_special_values(cases()[which]))) return;
    Node node{.kind = Kind::call, .which = which};
    uint32_t vary = 0;
    for (const at::Tensor& input : inputs) {
      const std::optional<int> id = operand_like(scope, input);
      if (!id) return;
      node.operands.push_back(*id);
      vary |= scope.vary(*id);
    }
    if (cases()[which].function.tolerance > 1e-10) {
      if (!chance(0.1)) return;
      program_.tolerance = 1e-3;
    }
    tamed(scope, add(scope, std::move(node), vary));
  }

  void draw_collective(Scope& scope) {
    const std::optional<int> id = some_value(scope);
    if (!id) return;
    const Shape shape = shape_of(scope.value(*id)[0]);
    Node node{.kind = Kind::collective, .operands = {*id}, .which = below(7), .axes = SpecEntry(some_axes(2))};
    const Grid grid(program_.axes);
    const int n = grid.count(node.axes.axes()), ndim = static_cast<int>(shape.size());
    node.dim = below(ndim), node.other_dim = below(ndim);
    const auto kind = static_cast<Collective>(node.which);
    const bool sums = kind == Collective::psum || kind == Collective::pmean || kind == Collective::pmax;
    const bool cuts = kind == Collective::psum_scatter || kind == Collective::all_to_all;
    if (!sums && kind != Collective::ppermute && !ndim) return;
    if (cuts && shape[node.dim] % n) return;
    const uint32_t axes = grid.set(node.axes.axes()), vary = scope.vary(*id);
    tamed(scope, add(scope, std::move(node), sums ? vary & ~axes : vary | axes));
  }

  void draw_region(Scope& scope, Kind kind) {
    if (scope.depth > 2) return;
    Node node{.kind = kind};
    if (kind == Kind::remat) node.which = below(3);
    if (kind == Kind::gradient) node.differentiable = !chance(0.1);
    Scope inside{.node = &node, .body = &node.body, .parent = &scope, .depth = scope.depth + 1};
    inside.in_shard_map = scope.in_shard_map || kind == Kind::shard_map;
    for (int i = 0, n = 1 + below(3); i < n; ++i) {
      const std::optional<int> id = some_value(scope);
      if (id && std::find(node.operands.begin(), node.operands.end(), *id) == node.operands.end()) import(inside, *id);
    }
    if (node.operands.empty()) return;
    const int wanted = 1 + below(4);
    for (int tries = 0; tries < 3 * wanted && static_cast<int>(inside.results.size()) < wanted; ++tries)
      draw_node(inside);
    if (inside.results.empty()) return;
    node.body.results.push_back(static_cast<int>(inside.results.size()) - 1);
    const bool is_derivative = kind == Kind::gradient || kind == Kind::jvp;
    if (!is_derivative && chance(0.3)) node.body.results.push_back(below(static_cast<int>(inside.results.size())));
    if (kind == Kind::remat && chance(0.1)) node.body.results.push_back(-1);
    uint32_t vary = 0;
    for (const int id : node.operands) vary |= scope.vary(id);
    if (kind == Kind::gradient) vary = scope.vary(node.operands[0]);
    if (kind == Kind::shard_map) draw_out_specs(node, inside);
    if (inside.in_shard_map) {
      node.vary = inside.vary_arguments;
      node.vary.insert(node.vary.end(), inside.vary_results.begin(), inside.vary_results.end());
    }
    std::vector<uint32_t> varies;
    for (const int r : node.body.results) varies.push_back(inside.vary(r));
    finish(node.body);
    const size_t results = scope.results.size();
    const Node repeated = node;
    const std::optional<int> id = add(scope, std::move(node), vary);
    if (!id) return;
    if (kind == Kind::remat || kind == Kind::jvp)
      for (size_t i = 0; i < varies.size(); ++i) scope.vary_results[results + i] = varies[i];
    // The library rejects a gradient that does not depend on its operand. A gradient of zeros may be one.
    if (is_derivative && is_zero(scope.results.back())) return drop(scope);
    if (kind == Kind::remat && !scope.parent && chance(0.4)) repeat(scope, repeated, *id);
  }

  static bool is_zero(const Lanes<at::Tensor>& lanes) {
    return std::all_of(lanes.begin(), lanes.end(), [](const at::Tensor& t) { return t.eq(0).all().item<bool>(); });
  }

  static void drop(Scope& scope) {
    scope.body->nodes.pop_back();
    scope.results.pop_back(), scope.vary_results.pop_back();
  }

  // Applies the block again to its own result, with new parameters.
  void repeat(Scope& scope, Node block, int last) {
    const int times = 1 + below(2);
    for (int i = 1; i <= times; ++i) {
      bool is_chained = false;
      for (int& id : block.operands) {
        const bool is_parameter = id < 0 && program_.leaves[-1 - id].role == Leaf::parameter;
        if (is_parameter) {
          Leaf leaf = program_.leaves[-1 - id];
          leaf.value = rolled(leaf.value, 1);
          leaf.layer = (leaf.layer + 1) % 3;
          program_.leaves.push_back(leaf);
          id = add_argument(scope, {leaf.value}, 0);
        } else if (!is_chained && scope.value(id)[0].is_floating_point()) {
          const Shape shape = shape_of(scope.value(id)[0]);
          std::optional<int> next = last;
          if (shape_of(scope.value(last)[0]) != shape) next = add_unary(scope, Kind::fit, last, {.shape = shape});
          if (!next) return;
          id = *next;
          is_chained = true;
        }
      }
      const std::optional<int> next = add(scope, block, 0);
      if (!next) return;
      last = *next;
    }
  }

  // Draws out_specs: each axis along which a result varies is on one of its dimensions or unreduced.
  void draw_out_specs(Node& node, const Scope& inside) {
    for (const int r : node.body.results) {
      const uint32_t vary = inside.vary(r);
      const int ndim = static_cast<int>(inside.value(r)[0].dim());
      std::vector<std::vector<std::string>> dims(ndim);
      std::vector<std::string> unreduced;
      for (size_t k = 0; k < program_.axes.size(); ++k) {
        if (!(vary >> k & 1)) continue;
        if (ndim && chance(0.8))
          dims[below(ndim)].push_back(program_.axes[k].name);
        else
          unreduced.push_back(program_.axes[k].name);
      }
      std::vector<SpecEntry> entries;
      for (auto& names : dims) {
        std::shuffle(names.begin(), names.end(), random_);
        entries.emplace_back(names);
      }
      node.out_specs.push_back(PartitionSpec(std::move(entries)).unreduced(unreduced));
    }
  }

  void draw_node(Scope& scope) {
    const int choice = below(100);
    if (choice < 12 && !scope.in_shard_map) {
      const std::optional<int> id = some_value(scope);
      if (id) add_unary(scope, Kind::constrain, *id, {.spec = draw_spec(shape_of(scope.value(*id)[0]), true, pads_)});
    } else if (choice < 14) {
      const std::optional<int> id = some_value(scope);
      if (id && chance(0.3) && !program_.special && add_unary(scope, Kind::half, *id, {.which = below(2)}))
        program_.tolerance = 0.3;  // sums of rounded terms may cancel
    } else if (choice < 24) {
      draw_region(scope, Kind::remat);
    } else if (choice < 31) {
      draw_region(scope, choice < 30 ? Kind::gradient : Kind::jvp);
    } else if (choice < 38 && !scope.in_shard_map) {
      draw_region(scope, Kind::shard_map);
    } else if (choice < 60 && scope.in_shard_map) {
      draw_collective(scope);
    } else if (choice == 99 && !scope.in_shard_map) {
      if (const std::optional<int> id = some_value(scope)) add_unary(scope, Kind::dlpack, *id);
    } else {
      draw_call(scope);
    }
  }

  // Replaces ids by positions: the arguments come first.
  static void finish(Body& body) {
    const auto position = [&](int id) { return id < 0 ? -1 - id : body.arguments + id; };
    for (Node& node : body.nodes)
      for (int& id : node.operands) id = position(id);
    for (int& id : body.results) id = position(id);
  }

  void draw_rest(Scope& scope) {
    const int n = static_cast<int>(scope.results.size());
    if (n) program_.body.results.push_back(n - 1);
    for (int i = below(3); i > 0 && n > 1; --i) program_.body.results.push_back(below(n - 1));
    for (size_t i = 0; i < program_.body.results.size(); ++i) program_.weights.push_back(random_() % 1000);
    GradientOptions& options = program_.options;
    if (chance(0.25)) options.reshard_after_forward = false;
    if (chance(0.25)) options.gather_groups = GatherGroups::by_parameter;
    if (chance(0.25)) options.prefetch_groups = 2 * below(2);
    if (chance(0.2) && program_.outer != Outer::train) options.reduce = false;
    if (chance(0.2)) options.shard_gradients_over = some_axes(2);
    if (chance(0.1)) options.reduce_dtype = float64;
    if (program_.outer == Outer::value_and_grad && chance(0.3)) program_.steps = 3;
    if (program_.outer == Outer::train) {
      program_.steps = 3;
      program_.tolerance = std::max(program_.tolerance, 1e-6);
      program_.optimizer = below(2);
      if (chance(0.6)) program_.shard_state_over = some_axes(2);
      options.shard_gradients_over = chance(0.5) ? program_.shard_state_over : std::vector<std::string>();
      // Only with one process: several would have to agree when a folder may be deleted, and make_mesh rejects some
      // orders of axes across processes.
      if (chance(0.5) && process_count() == 1) {
        program_.restored_axes = program_.axes;
        std::reverse(program_.restored_axes.begin(), program_.restored_axes.end());
      }
    }
  }

  std::mt19937_64 random_;
  Program program_;
  int sizes_ = 0;
  size_t special_ = 0;
  bool pads_ = false;
  std::vector<std::string> batch_axes_;
  std::optional<PartitionSpec> wide_;  // the sharding that add_wide_leaf chose, for the import that follows
};

}  // namespace

Program draw(uint64_t seed) {
  for (uint64_t attempt = 0;; ++attempt) {
    Program program = Drawer(seed * 1000003 + attempt)();
    program.seed = seed;
    if (program.body.nodes.empty()) continue;
    if (is_well_conditioned(program)) return program;
  }
}

}  // namespace tessera::programs
