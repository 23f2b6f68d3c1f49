// Prints programs as C++ and shrinks them.
#include "tests/programs/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>

namespace tessera::programs {

namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name);
  return "{" + text + "}";
}

std::string text_of(const PartitionSpec& spec) {
  std::string text;
  for (const SpecEntry& entry : spec.entries()) {
    if (!text.empty()) text += ", ";
    text += entry.axes().empty() ? "none"
            : entry.pads()       ? fmt::format("{{{}, Uneven::pad}}", quoted(entry.axes()))
                                 : quoted(entry.axes());
  }
  text = "P{" + text + "}";
  if (!spec.unreduced_axes().empty()) text += ".unreduced(" + quoted(spec.unreduced_axes()) + ")";
  if (!spec.reduced_axes().empty()) text += ".reduced(" + quoted(spec.reduced_axes()) + ")";
  return text;
}

std::string text_of(const std::vector<PartitionSpec>& specs) {
  std::string text;
  for (const PartitionSpec& spec : specs) text += (text.empty() ? "" : ", ") + text_of(spec);
  return "{" + text + "}";
}

// Prints every value, so that the program needs neither the generator nor case inputs.
std::string text_of(const at::Tensor& t) {
  const char* type = t.is_floating_point() ? "double" : t.scalar_type() == at::kBool ? "bool" : "int32_t";
  const at::Tensor flat = t.reshape({-1}).to(at::kDouble);
  std::string values;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const double x = flat[i].item<double>();
    const std::string number = x != x       ? "NAN"
                               : x > 1e308  ? "INFINITY"
                               : x < -1e308 ? "-INFINITY"
                                            : fmt::format("{}", x);
    values += (i ? ", " : "") + (std::string(type) == "bool" ? (x != 0 ? "true" : "false") : number);
  }
  return fmt::format("value<{}>({{{}}}, {{{}}})", type, values, fmt::join(t.sizes(), ", "));
}

const char* const policies[] = {"nothing_saveable", "dots_saveable", "everything_saveable"};

class Printer {
 public:
  std::string body(const Body& body, const std::string& prefix, int indent) {
    std::string text;
    std::vector<std::string> names;
    for (int i = 0; i < body.arguments; ++i) names.push_back(fmt::format("{}[{}]", prefix, i));
    for (const Node& node : body.nodes) {
      const std::string name = fmt::format("v{}", ++count_);
      std::vector<std::string> operands;
      for (const int i : node.operands) operands.push_back(names[i]);
      const bool several = node.kind == Kind::remat || node.kind == Kind::shard_map;
      text += fmt::format("{}const {} {} = {};\n", std::string(indent, ' '), several ? "List" : "Array", name,
                          expression(node, operands, indent));
      for (int i = 0; i < node.num_results(); ++i) names.push_back(several ? fmt::format("{}[{}]", name, i) : name);
    }
    results_.clear();
    for (const int r : body.results) results_.push_back(names[r]);
    return text;
  }
  const std::vector<std::string>& results() const { return results_; }

 private:
  std::string expression(const Node& node, const std::vector<std::string>& x, int indent) {
    const std::string margin(indent, ' ');
    switch (node.kind) {
      case Kind::call:
        return fmt::format("call({}, \"{}\", {{{}}})", node.which, cases()[node.which].function.name,
                           fmt::join(x, ", "));
      case Kind::fit:
        return fmt::format("fitted({}, Shape{{{}}})", x[0], fmt::join(node.shape, ", "));
      case Kind::squash:
        return fmt::format("sigmoid({}) * {} + {}", x[0], node.hi - node.lo, node.lo);
      case Kind::scale:
        return fmt::format("{} * {}", x[0], node.hi);
      case Kind::half:
        return fmt::format("rounded({}, {})", x[0], node.which != 0);
      case Kind::constrain:
        return fmt::format("redistribute({}, NamedSharding(mesh, {}))", x[0], text_of(node.spec));
      case Kind::dlpack:
        return fmt::format("through_dlpack({})", x[0]);
      case Kind::collective:
        return collective_of(node, x[0]);
      case Kind::remat:
      case Kind::shard_map:
      case Kind::gradient:
      case Kind::jvp:
        break;
    }
    const std::string argument = fmt::format("x{}", ++count_);
    const std::string inner = body(node.body, argument, indent + 2);
    if (node.kind == Kind::gradient || node.kind == Kind::jvp)
      return fmt::format("inner_{}([&](const List& {}) -> Array {{\n{}{}  return {};\n{}}}, {{{}}}{})",
                         node.kind == Kind::jvp ? "jvp" : "gradient", argument, inner, margin, results_[0], margin,
                         fmt::join(x, ", "), node.kind == Kind::jvp ? "" : fmt::format(", {}", node.differentiable));
    const std::string function = fmt::format("[=](const List& {}) -> List {{\n{}{}  return {{{}}};\n{}}}", argument,
                                             inner, margin, fmt::join(results_, ", "), margin);
    if (node.kind == Kind::remat)
      return fmt::format("remat({}, {{{}}}, RematPolicy::{})", function, fmt::join(x, ", "), policies[node.which]);
    return fmt::format("shard_map({}, mesh, Specs({}), Specs({}))(List{{{}}})", function, text_of(node.in_specs),
                       text_of(node.out_specs), fmt::join(x, ", "));
  }

  static std::string collective_of(const Node& node, const std::string& x) {
    const std::string axes = quoted(node.axes.axes());
    switch (static_cast<Collective>(node.which)) {
      case Collective::psum:
        return fmt::format("psum({}, {})", x, axes);
      case Collective::pmean:
        return fmt::format("pmean({}, {})", x, axes);
      case Collective::pmax:
        return fmt::format("pmax({}, {})", x, axes);
      case Collective::all_gather:
        return fmt::format("all_gather({}, {}, {{.dim = {}, .tiled = true}})", x, axes, node.dim);
      case Collective::psum_scatter:
        return fmt::format("psum_scatter({}, {}, {{.scatter_dim = {}, .tiled = true}})", x, axes, node.dim);
      case Collective::all_to_all:
        return fmt::format("all_to_all({}, {}, {}, {}, {{.tiled = true}})", x, axes, node.dim, node.other_dim);
      case Collective::ppermute:
        return fmt::format("ppermute_ring({}, {})", x, axes);
    }
    return "";
  }

  int count_ = 0;
  std::vector<std::string> results_;
};

std::string text_of(const GradientOptions& options) {
  std::vector<std::string> fields;
  if (!options.reshard_after_forward) fields.push_back(".reshard_after_forward = false");
  if (options.gather_groups != GatherGroups::by_block) fields.push_back(".gather_groups = GatherGroups::by_parameter");
  if (options.prefetch_groups != 1) fields.push_back(fmt::format(".prefetch = {}", options.prefetch_groups));
  if (!options.reduce) fields.push_back(".reduce = false");
  if (!options.shard_gradients_over.empty()) fields.push_back(".shard = " + quoted(options.shard_gradients_over));
  if (options.reduce_dtype) fields.push_back(".reduce_dtype = float64");
  return fmt::format("{{{}}}", fmt::join(fields, ", "));
}

}  // namespace

std::string as_cpp(const Program& program) {
  std::string text = fmt::format("// programs {} {}\n#include \"tests/programs/reproduce.h\"\n\nint main() {{\n",
                                 program.seed, program.seed + 1);
  std::vector<std::string> axes;
  for (const MeshAxis& axis : program.axes) axes.push_back(fmt::format("{{\"{}\", {}}}", axis.name, axis.size));
  text += fmt::format("  const Mesh mesh = make_mesh({{{}}}, {{.private_replicas = {}}});\n", fmt::join(axes, ", "),
                      program.private_replicas);
  text += "  const std::vector<Leaf> leaves = {\n";
  static const char* const roles[] = {"parameter", "frozen", "input", "batch"};
  for (const Leaf& leaf : program.leaves) {
    std::string more;
    for (const at::Tensor& t : leaf.more) more += (more.empty() ? "" : ", ") + text_of(t);
    text += fmt::format("      {{Leaf::{}, {}, {{{}}}, {}, {}}},\n", roles[leaf.role], text_of(leaf.value), more,
                        leaf.spec ? text_of(*leaf.spec) : "std::nullopt", leaf.layer);
  }
  text += "  };\n  const auto f = [=](const List& x) -> List {\n";
  Printer printer;
  text += printer.body(program.body, "x", 4);
  text += fmt::format("    return {{{}}};\n  }};\n", fmt::join(printer.results(), ", "));
  std::string note;
  if (program.outer != Outer::value_and_grad || program.steps > 1)
    note = fmt::format("  // Run as {} with {} micro-batches, {} steps.\n",
                       std::array{"value_and_grad", "accumulate_gradients", "pipeline",
                                  "training"}[static_cast<size_t>(program.outer)],
                       program.num_micro_batches, program.steps);
  text += fmt::format("{}  show(mesh, leaves, f, {{{}}}, {});\n}}\n", note, fmt::join(program.weights, ", "),
                      text_of(program.options));
  return text;
}

namespace {

// Removes node n. Its results are replaced by its first operand.
void without_node(Body& body, size_t n) {
  const Node& node = body.nodes[n];
  int first = body.arguments;
  for (size_t i = 0; i < n; ++i) first += body.nodes[i].num_results();
  const int count = node.num_results(), in_place = node.operands.empty() ? 0 : node.operands[0];
  const auto renumber = [&](int& id) { id = id < first ? id : id < first + count ? in_place : id - count; };
  for (size_t i = n + 1; i < body.nodes.size(); ++i)
    for (int& id : body.nodes[i].operands) renumber(id);
  for (int& id : body.results) renumber(id);
  body.nodes.erase(body.nodes.begin() + static_cast<ptrdiff_t>(n));
}

// Appends the bodies of a program to `all`, outer ones first.
void collect(Body& body, std::vector<Body*>& all) {
  all.push_back(&body);
  for (Node& node : body.nodes)
    if (!node.body.results.empty()) collect(node.body, all);
}

// Removes the entry of a removed value from node.vary.
void forget(Body& body, size_t n, std::vector<uint32_t>& vary) {
  if (vary.empty()) return;
  int first = body.arguments;
  for (size_t i = 0; i < n; ++i) first += body.nodes[i].num_results();
  vary.erase(vary.begin() + first, vary.begin() + first + body.nodes[n].num_results());
}

Node* owner_of(Body& body, const Body* inner) {
  for (Node& node : body.nodes) {
    if (&node.body == inner) return &node;
    if (Node* found = owner_of(node.body, inner)) return found;
  }
  return nullptr;
}

std::vector<Program> smaller(const Program& program) {
  std::vector<Program> all;
  std::vector<Body*> bodies;
  Program copy = program;
  collect(copy.body, bodies);
  for (size_t b = 0; b < bodies.size(); ++b)
    for (size_t n = bodies[b]->nodes.size(); n-- > 0;) {
      Program next = program;
      std::vector<Body*> inner;
      collect(next.body, inner);
      if (b && inner[b]->nodes.size() == 1) continue;
      if (Node* owner = owner_of(next.body, inner[b])) forget(*inner[b], n, owner->vary);
      without_node(*inner[b], n);
      all.push_back(std::move(next));
    }
  const auto with = [&](const auto& change) { change(all.emplace_back(program)); };
  for (size_t r = 0; program.body.results.size() > 1 && r < program.body.results.size(); ++r)
    with([&](Program& p) {
      p.body.results.erase(p.body.results.begin() + static_cast<ptrdiff_t>(r));
      p.weights.erase(p.weights.begin() + static_cast<ptrdiff_t>(r));
    });
  for (size_t l = 0; l < program.leaves.size(); ++l) {
    if (program.leaves[l].spec && !program.leaves[l].spec->entries().empty())
      with([&](Program& p) { p.leaves[l].spec = PartitionSpec(); });
    if (program.leaves[l].spec) with([&](Program& p) { p.leaves[l].spec = std::nullopt; });
    if (program.leaves[l].role == Leaf::parameter) with([&](Program& p) { p.leaves[l].role = Leaf::input; });
  }
  if (text_of(program.options) != "{}") with([](Program& p) { p.options = {}; });
  if (!program.options.shard_gradients_over.empty()) with([](Program& p) { p.options.shard_gradients_over = {}; });
  if (!program.options.reduce) with([](Program& p) { p.options.reduce = true; });
  if (program.steps > 1) with([](Program& p) { p.steps = 1; });
  if (program.outer != Outer::value_and_grad && program.num_micro_batches == 1)
    with([](Program& p) { p.outer = Outer::value_and_grad; });
  if (program.private_replicas) with([](Program& p) { p.private_replicas = false; });
  for (size_t i = 0; i < program.axes.size(); ++i)
    if (program.axes[i].size > 2) with([&](Program& p) { p.axes[i].size = 2; });
  return all;
}

// Removes the leaves that no node and no result reads.
void drop_unused_leaves(Program& program) {
  std::vector<int> place(program.leaves.size(), -1);
  for (const Node& node : program.body.nodes)
    for (const int id : node.operands)
      if (id < program.body.arguments) place[id] = 0;
  for (const int id : program.body.results)
    if (id < program.body.arguments) place[id] = 0;
  std::vector<Leaf> kept;
  for (size_t l = 0; l < place.size(); ++l)
    if (place[l] == 0) place[l] = static_cast<int>(kept.size()), kept.push_back(program.leaves[l]);
  const int fewer = program.body.arguments - static_cast<int>(kept.size());
  const auto renumber = [&](int& id) { id = id < program.body.arguments ? place[id] : id - fewer; };
  for (Node& node : program.body.nodes)
    for (int& id : node.operands) renumber(id);
  for (int& id : program.body.results) renumber(id);
  program.body.arguments -= fewer;
  program.leaves = std::move(kept);
}

}  // namespace

Program minimized(Program program, const std::function<bool(const Program&)>& fails, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  // Removes trailing nodes that the failure does not need: first half of them, then fewer.
  for (size_t n = program.body.nodes.size() / 2; n > 0 && spent() < seconds; n /= 2) {
    Program next = program;
    while (next.body.nodes.size() > program.body.nodes.size() - n) without_node(next.body, next.body.nodes.size() - 1);
    if (fails(next)) program = std::move(next);
  }
  // Tries the changes in order. After a success, continues at the same index of the new list.
  for (size_t at = 0, failed = 0; spent() < seconds;) {
    std::vector<Program> all = smaller(program);
    if (all.empty() || failed >= all.size()) break;
    at %= all.size();
    if (fails(all[at]))
      program = std::move(all[at]), failed = 0;
    else
      ++at, ++failed;
  }
  Program less = program;
  drop_unused_leaves(less);
  return fails(less) ? less : program;
}

}  // namespace tessera::programs
