// Interned mesh rules: the tables of one mesh, checked and merged once.
#include "sharding/placement/mesh_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "sharding/base/fail.h"
#include "sharding/placement/resolver.h"

namespace tessera {

namespace detail {
struct MeshRulesImpl {
  Mesh mesh;
  Rules rules;
  const MeshRulesImpl* activations = nullptr;
  const MeshRulesImpl* optimizer_state = nullptr;
  Uneven uneven = Uneven::error;  // applies to all rules: these tables and a parameter's own rules
};
}  // namespace detail

std::string ParamPattern::to_string() const {
  if (min_size == 0) return path;
  return fmt::format("{} of at least {} elements", path, min_size);
}

std::string Rule::to_string() const {
  if (spec) return fmt::format("{} -> {}", arrays.to_string(), spec->to_string());
  const std::string axes = fmt::format("\"{}\"", fmt::join(mesh_axes, "\", \""));
  if (stage) return fmt::format("{} -> stage {} of {}", arrays.to_string(), *stage, axes);
  const char* padded = uneven == Uneven::pad ? ", Uneven::pad" : "";
  if (!is_by_name() && !arrays.path.empty())
    return fmt::format("{} -> longest dim over {}{}", arrays.to_string(), axes, padded);
  const std::string virtual_stages =
      num_virtual_stages == 1 ? "" : fmt::format(", {} virtual stages", num_virtual_stages);
  return fmt::format("\"{}\" -> {}{}{}", logical, mesh_axes.empty() ? "replicated" : axes, padded, virtual_stages);
}

std::vector<std::string> Rule::all_mesh_axes() const {
  std::vector<std::string> all = mesh_axes;
  if (spec)
    for (const SpecEntry& entry : spec->entries()) all.insert(all.end(), entry.axes().begin(), entry.axes().end());
  return all;
}

namespace {
std::string given(const char* axis) {
  if (!axis) fail(ErrorKind::invalid_argument, "Rule", "a null pointer given, expected a mesh axis or replicated.");
  return axis;
}
}  // namespace

Rule::Rule(std::string name, Replicated) : Rule(std::move(name), std::vector<std::string>{}) {}
Rule::Rule(std::string name, const char* axis, Uneven uneven)
    : Rule(std::move(name), std::vector<std::string>{given(axis)}, uneven) {}
Rule::Rule(std::string name, std::string axis, Uneven uneven)
    : Rule(std::move(name), std::vector{std::move(axis)}, uneven) {}
Rule::Rule(std::string name, std::initializer_list<const char*> axes, Uneven uneven)
    : Rule(std::move(name), std::vector<std::string>(axes.begin(), axes.end()), uneven) {}
Rule::Rule(std::string name, std::vector<std::string> axes, Uneven uneven)
    : logical(std::move(name)), mesh_axes(std::move(axes)), uneven(uneven) {
  if (logical.empty()) arrays.path.clear();  // so MeshRules rejects the empty name, and it matches no parameter
}
Rule::Rule(ParamPattern which, PartitionSpec all_dims) : arrays(std::move(which)), spec(std::move(all_dims)) {}
Rule::Rule(ParamPattern which, LongestDim dim, Uneven uneven)
    : mesh_axes(std::move(dim.mesh_axes)), arrays(std::move(which)), uneven(uneven) {}
Rule::Rule(ParamPattern which, Replicated) : arrays(std::move(which)), spec(PartitionSpec()) {}
Rule::Rule(ParamPattern which, OnStage on)
    : mesh_axes{std::move(on.mesh_axis)}, arrays(std::move(which)), stage(on.at) {}
Rule::Rule(std::string name, Interleaved stages) : Rule(std::move(name), std::move(stages.mesh_axis)) {
  num_virtual_stages = stages.num_virtual_stages;
}
Rule::Rule(const Rule& rule) = default;
Rule::Rule(Rule&& rule) noexcept = default;
Rule& Rule::operator=(const Rule& rule) = default;
Rule& Rule::operator=(Rule&& rule) noexcept = default;
Rule::~Rule() = default;

Rules::Rules(std::initializer_list<Rule> rules) : std::vector<Rule>(rules) {}
Rules::Rules(std::vector<Rule> rules) : std::vector<Rule>(std::move(rules)) {}
Rules::Rules(const Rules& rules) = default;
Rules::Rules(Rules&& rules) noexcept = default;
Rules& Rules::operator=(const Rules& rules) = default;
Rules& Rules::operator=(Rules&& rules) noexcept = default;
Rules::~Rules() = default;

std::string Rules::to_string() const {
  std::vector<std::string> lines;
  for (const Rule& rule : *this) lines.push_back(rule.to_string());
  return fmt::format("{}", fmt::join(lines, ", "));
}

namespace {

using detail::MeshRulesImpl;

// ---- checks of rules

[[noreturn]] void fail_rule(ErrorKind kind, const Rule& rule, const char* what) {
  fail(kind, "MeshRules", "the rule {} {}", rule.to_string(), what);
}

void check_rule(const Rule& rule) {
  const std::vector<std::string> axes = rule.all_mesh_axes();
  if (std::set<std::string>(axes.begin(), axes.end()).size() != axes.size())
    fail_rule(ErrorKind::duplicate_axis, rule, "names a mesh axis twice. Name each once.");
  if (rule.num_virtual_stages < 1) fail_rule(ErrorKind::invalid_argument, rule, "given, expected 1 or more.");
  if (rule.is_by_name()) return;
  if (rule.arrays.path.empty())
    fail_rule(ErrorKind::invalid_argument, rule,
              "has no name and no pattern of paths. Give \"**\" for all parameters.");
  if (rule.stage && rule.arrays.min_size)
    fail_rule(ErrorKind::invalid_argument, rule, "selects arrays by size. Name the paths of the stage's parameters.");
  if (!rule.spec) return;
  const std::vector<SpecEntry>& entries = rule.spec->entries();
  if (std::any_of(entries.begin(), entries.end(), [](const SpecEntry& e) { return e.is_unconstrained(); }))
    fail_rule(ErrorKind::unconstrained, rule,
              "leaves a dim unconstrained. A parameter needs a complete sharding: give none or mesh axes.");
  if (!rule.spec->unreduced_axes().empty() || !rule.spec->reduced_axes().empty())
    fail_rule(ErrorKind::invalid_argument, rule, "requests a partial sum. A parameter is sharded or replicated.");
}

void check_axes(const Rule& rule, Mesh mesh) {
  for (const std::string& axis : rule.all_mesh_axes())
    if (!mesh.has_axis(axis))
      fail(ErrorKind::unknown_axis, "MeshRules",
           "the rule {} names the mesh axis \"{}\", which the mesh ({}) does not have{}. Name one of its axes, or let "
           "missing ones count as size one: {{.missing_axes = MissingAxes::ok}}.",
           rule.to_string(), axis, mesh.to_string(), detail::nearest_axis(axis, mesh));
}

void check_activation_rule(const Rule& rule) {
  if (!rule.is_by_name())
    fail_rule(ErrorKind::invalid_argument, rule, "names paths, which activations do not have. Give rules by name.");
}

// ---- interning

// Returns a text that differs for any two different tables, whatever characters their names contain.
std::string identity(const Rules& rules) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += fmt::format("{}:{}", part.size(), part); };
  for (const Rule& rule : rules) {
    add(rule.logical), add(rule.arrays.path);
    text += fmt::format("{}{{", rule.arrays.min_size);
    for (const std::string& axis : rule.mesh_axes) add(axis);
    if (rule.spec)
      for (const SpecEntry& entry : rule.spec->entries()) {
        text += entry.pads() ? '+' : '[';
        for (const std::string& axis : entry.axes()) add(axis);
      }
    if (rule.stage) text += fmt::format("@{}", *rule.stage);
    if (rule.num_virtual_stages != 1) text += fmt::format("*{}", rule.num_virtual_stages);
    text += rule.spec ? "}P" : rule.uneven == Uneven::pad ? "}+" : "}";
  }
  return text;
}

// Returns `first`, followed by the rules of `rest` except those for a name of `first`.
Rules merged(Rules first, const Rules& rest) {
  std::set<std::string> names;
  for (const Rule& rule : first)
    if (rule.is_by_name()) names.insert(rule.logical);
  for (const Rule& rule : rest)
    if (rule.is_by_name() ? !names.contains(rule.logical) : std::find(first.begin(), first.end(), rule) == first.end())
      first.push_back(rule);
  return first;
}

Rules only_by_name(Rules rules) {
  std::erase_if(rules, [](const Rule& rule) { return !rule.is_by_name(); });
  return rules;
}

class Interned {
 public:
  const MeshRulesImpl* get(const Mesh& mesh, const Rules& rules, const MeshRulesOptions& others) {
    auto& entry =
        layouts_[{mesh.impl(), identity(rules) + '|' + identity(others.activations) + '|' +
                                   identity(others.optimizer_state) + (others.uneven == Uneven::pad ? "|+" : "|")}];
    if (entry) return entry.get();
    entry = std::make_unique<MeshRulesImpl>(MeshRulesImpl{.mesh = mesh, .rules = rules, .uneven = others.uneven});
    MeshRulesImpl* made = entry.get();
    made->activations = alone(made, only_by_name(merged(others.activations, rules)));
    made->optimizer_state = alone(made, merged(others.optimizer_state, rules));
    return made;
  }

 private:
  // Returns mesh rules with only this table; `made` itself if its table is the same.
  const MeshRulesImpl* alone(const MeshRulesImpl* made, const Rules& rules) {
    return rules == made->rules ? made : get(made->mesh, rules, {.uneven = made->uneven});
  }

  std::map<std::pair<const detail::MeshImpl*, std::string>, std::unique_ptr<MeshRulesImpl>> layouts_;
};

}  // namespace

MeshRules::MeshRules(Mesh mesh, Rules rules, MeshRulesOptions options) {
  if (options.uneven == Uneven::pad)
    for (Rules* table : {&rules, &options.activations, &options.optimizer_state})
      for (Rule& rule : *table)
        if (!rule.mesh_axes.empty()) rule.uneven = Uneven::pad;
  if (mesh.empty()) fail(ErrorKind::invalid_argument, "MeshRules", "no mesh given. Make one with make_mesh.");
  for (const Rules* table : {&rules, &options.activations, &options.optimizer_state})
    for (const Rule& rule : *table) {
      check_rule(rule);
      if (options.missing_axes == MissingAxes::error) check_axes(rule, mesh);
    }
  std::for_each(options.activations.begin(), options.activations.end(), check_activation_rule);
  static std::mutex mutex;
  static auto& interned = *new Interned;  // never destroyed: see make_mesh
  std::lock_guard lock(mutex);
  impl_ = interned.get(mesh, rules, options);
}

Mesh MeshRules::mesh() const { return impl_->mesh; }
const Rules& MeshRules::rules() const { return impl_->rules; }
MeshRules MeshRules::activations() const { return MeshRules(impl_->activations); }
MeshRules MeshRules::optimizer_state() const { return MeshRules(impl_->optimizer_state); }
MeshRules detail::on_other_mesh(const MeshRules& mesh_rules, const Mesh& mesh) {
  if (mesh_rules.mesh() == mesh) return mesh_rules;
  return MeshRules(mesh, mesh_rules.rules(),
                   {.activations = mesh_rules.activations().rules(),
                    .optimizer_state = mesh_rules.optimizer_state().rules(),
                    .missing_axes = MissingAxes::ok,
                    .uneven = mesh_rules.impl()->uneven});
}

RuleResolution MeshRules::resolve(const Axes& axes, const Shape& shape, std::string_view verb,
                                  std::string_view path) const {
  return detail::walk_rules(impl_->mesh, impl_->rules, axes, shape, verb, path, impl_->uneven);
}

RuleResolution MeshRules::resolve(const Rules& own, const Axes& axes, const Shape& shape, std::string_view verb,
                                  std::string_view path) const {
  for (const Rule& rule : own) {
    check_rule(rule);
    if (rule.stage)
      fail_rule(ErrorKind::invalid_argument, rule,
                "is given with a parameter, which cannot choose a stage. Give it to the mesh rules.");
  }
  Rules all = own;
  all.insert(all.end(), impl_->rules.begin(), impl_->rules.end());
  return detail::walk_rules(impl_->mesh, all, axes, shape, verb, path, impl_->uneven);
}

}  // namespace tessera
