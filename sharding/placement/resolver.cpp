// Resolves rules for one array's names, path and shape.
#include "sharding/placement/resolver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "sharding/base/error.h"
#include "sharding/base/text.h"

namespace tessera::detail {

std::string nearest_axis(const std::string& name, const Mesh& mesh) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return nearest_words(name, names);
}

namespace {

thread_local std::vector<NamedDims>* current_survey = nullptr;

class Resolver {
 public:
  Resolver(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
           std::string_view path, Uneven uneven)
      : mesh_(mesh),
        rules_(rules),
        axes_(axes),
        shape_(shape),
        verb_(verb),
        path_(path),
        all_pad_(uneven == Uneven::pad),
        entries_(axes.size()),
        settled_(axes.size()),
        indivisible_(axes.size(), nullptr) {}

  RuleResolution resolve() {
    if (axes_.size() != shape_.size())
      fail_at(ErrorKind::rank_mismatch, fmt::format("{} names for an array of shape {}. Give one name to each dim.",
                                                    axes_.to_string(), tessera::to_string(shape_)));
    for (size_t d = 0; d < axes_.size(); ++d)
      if (axes_[d].is_mesh_axis()) take_directly(axes_[d].name(), d);
    for (const Rule& rule : rules_)
      if (!rule.stage) rule.is_by_name() ? consider_name(rule) : consider_arrays(rule);
    check_open_dims();
    result_.spec = PartitionSpec(std::move(entries_));
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail_at(ErrorKind kind, const std::string& message) const {
    fail(kind, verb_, path_.empty() ? message : fmt::format("{}: {}", path_, message));
  }

  void take_directly(const std::string& axis, size_t d) {
    if (!mesh_.has_axis(axis))
      fail_at(ErrorKind::unknown_axis,
              fmt::format("dim {} names the mesh axis \"{}\", the mesh is ({}). Use one of its axes.", d, axis,
                          mesh_.to_string()));
    if (!taken_.insert(axis).second)
      fail_at(ErrorKind::duplicate_axis,
              fmt::format("the mesh axis \"{}\" is named by two dims. An axis can shard only one dim.", axis));
    const bool is_uneven = shape_[d] % mesh_.size(axis) != 0;
    if (is_uneven && !all_pad_) fail_uneven(d, {axis}, "");
    settle(d, {axis}, is_uneven);
  }

  // The result of trying a rule's mesh axes on one dimension: the axes that the mesh has, or the reason for a refusal.
  struct Fit {
    std::vector<std::string> axes;
    std::string refusal;
    bool uneven = false;  // the axes do not divide the dimension; without a refusal it is padded
  };

  Fit fit(const std::vector<std::string>& mesh_axes, bool pads, size_t d) const {
    Fit result;
    int64_t n = 1;
    for (const std::string& axis : mesh_axes) {
      if (!mesh_.has_axis(axis)) continue;
      if (taken_.contains(axis)) return {.refusal = fmt::format("mesh axis \"{}\" is taken by another dim", axis)};
      result.axes.push_back(axis);
      n *= mesh_.size(axis);
    }
    result.uneven = shape_[d] % n != 0;
    if (!result.uneven || pads) return result;
    return {.refusal = fmt::format("{} is not divisible by {}", shape_[d], n), .uneven = true};
  }

  bool pads(const Rule& rule) const { return all_pad_ || rule.uneven == Uneven::pad; }

  void take(size_t d, Fit fitted) {
    taken_.insert(fitted.axes.begin(), fitted.axes.end());
    settle(d, std::move(fitted.axes), fitted.uneven);
  }

  void settle(size_t d, std::vector<std::string> mesh_axes, bool is_padded) {
    entries_[d] = SpecEntry(std::move(mesh_axes), is_padded ? Uneven::pad : Uneven::error);
    settled_[d] = true;
  }

  void consider_name(const Rule& rule) {
    for (size_t d = 0; d < axes_.size(); ++d) {
      if (axes_[d].is_mesh_axis() || axes_[d].name() != rule.logical) continue;
      if (settled_[d]) {
        decide(rule, d, "an earlier rule applies to the dim");
        continue;
      }
      Fit fitted = fit(rule.mesh_axes, pads(rule), d);
      std::string refusal = fitted.refusal;
      if (fitted.uneven && !refusal.empty()) indivisible_[d] = &rule;
      if (refusal.empty()) take(d, std::move(fitted));
      decide(rule, d, std::move(refusal));
    }
  }

  void consider_arrays(const Rule& rule) {
    if (!path_matches(path_, rule.arrays.path)) return;
    const int64_t size = std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<>());
    if (size < rule.arrays.min_size) return decide_all(rule, fmt::format("the array has {} elements", size));
    if (!settled_.empty() && std::all_of(settled_.begin(), settled_.end(), [](bool s) { return s; }))
      return decide_all(rule, "earlier rules apply to every dim");
    rule.spec ? consider_spec(rule) : consider_longest_dim(rule);
  }

  void consider_spec(const Rule& rule) {
    const std::vector<SpecEntry>& entries = rule.spec->entries();
    if (entries.size() > shape_.size()) {
      too_long_ = &rule;
      return decide_all(rule, fmt::format("the spec has {} entries, the array {} dim{}", entries.size(), shape_.size(),
                                          shape_.size() == 1 ? "" : "s"));
    }
    std::vector<Fit> fits(shape_.size());
    for (size_t d = 0; d < entries.size(); ++d) {
      if (settled_[d]) continue;
      fits[d] = fit(entries[d].axes(), entries[d].pads() || all_pad_, d);
      if (fits[d].uneven && !fits[d].refusal.empty()) indivisible_[d] = &rule;
      if (!fits[d].refusal.empty()) return decide_all(rule, fmt::format("dim {}: {}", d, fits[d].refusal));
    }
    for (size_t d = 0; d < fits.size(); ++d)
      if (!settled_[d]) take(d, std::move(fits[d]));
    decide_all(rule, "");
  }

  void consider_longest_dim(const Rule& rule) {
    std::vector<size_t> dims;
    for (size_t d = 0; d < shape_.size(); ++d)
      if (!settled_[d]) dims.push_back(d);
    std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return shape_[a] > shape_[b]; });
    std::string refusal = "the array has no dim";
    for (const bool padded : {false, true}) {
      if (padded && !pads(rule)) continue;
      for (size_t d : dims) {
        Fit fitted = fit(rule.mesh_axes, padded, d);
        if (fitted.refusal.empty()) {
          take(d, std::move(fitted));
          return decide(rule, d, "");
        }
        refusal = d == dims[0] ? fitted.refusal : "no remaining dim can be sharded: " + fitted.refusal;
      }
    }
    decide_all(rule, std::move(refusal));
  }

  void decide(const Rule& rule, size_t d, std::string refusal) { decide_on(rule, static_cast<int>(d), refusal); }
  void decide_all(const Rule& rule, std::string refusal) { decide_on(rule, -1, refusal); }
  void decide_on(const Rule& rule, int d, std::string& refusal) {
    const bool matched = refusal.empty();
    const auto number = static_cast<size_t>(&rule - rules_.data());
    result_.decisions.push_back({d, rule.to_string(), matched, std::move(refusal), number});
  }

  // ---- errors if no rule has placed a dimension

  bool has_rule(const std::string& name) const {
    return std::any_of(rules_.begin(), rules_.end(), [&](const Rule& r) { return r.logical == name; });
  }

  void check_open_dims() const {
    for (size_t d = 0; d < axes_.size(); ++d)
      if (!settled_[d] && !axes_[d].is_none() && !has_rule(axes_[d].name()) && !current_survey) {
        if (nothing_but_too_long()) fail_too_long();
        if (indivisible_[d]) fail_uneven(d, *indivisible_[d]);
        fail_unknown(d);
      }
    for (size_t d = 0; d < axes_.size(); ++d)
      if (!settled_[d] && indivisible_[d]) fail_uneven(d, *indivisible_[d]);
    if (nothing_but_too_long()) fail_too_long();
  }

  // Returns true if a spec was too long and nothing else places the array.
  bool nothing_but_too_long() const {
    return too_long_ && std::none_of(settled_.begin(), settled_.end(), [](bool s) { return s; }) && result_is_empty();
  }

  bool result_is_empty() const {
    return std::none_of(result_.decisions.begin(), result_.decisions.end(), [](const auto& d) { return d.matched; });
  }

  [[noreturn]] void fail_too_long() const {
    fail_at(ErrorKind::rank_mismatch,
            fmt::format("the rule {} has more entries than the array of shape {} has dims. Add a rule for it: "
                        "{{ParamPattern{{\"{}\"}}, replicated}}.",
                        too_long_->to_string(), tessera::to_string(shape_), path_));
  }

  [[noreturn]] void fail_unknown(size_t d) const {
    std::set<std::string> known;
    std::vector<std::string> names;
    for (const Rule& rule : rules_)
      if (rule.is_by_name() && known.insert("\"" + rule.logical + "\"").second) names.push_back(rule.logical);
    fail_at(
        ErrorKind::unknown_axis,
        fmt::format("dim {} is named \"{}\", which is in no rule{}. {}.{} Add {{\"{}\", replicated}} to replicate it.",
                    d, axes_[d].name(), nearest_words(axes_[d].name(), names),
                    known.empty() ? "No rule names a dim" : fmt::format("The rules name: {}", fmt::join(known, ", ")),
                    refused_arrays(), axes_[d].name()));
  }

  // Returns why a rule for a ParamPattern did not place this array; empty if there was no such rule. For example: " The
  // rule ParamPattern{} -> longest dim over 'data' does not place it: ... ."
  std::string refused_arrays() const {
    for (const auto& decision : result_.decisions)
      if (!decision.matched && !rules_[decision.number].is_by_name())
        return fmt::format(" The rule {} does not place it: {}.", decision.rule, decision.reason);
    return "";
  }

  [[noreturn]] void fail_uneven(size_t d, const Rule& rule) const {
    fail_uneven(d, rule.spec ? rule.spec->entries()[d].axes() : rule.mesh_axes,
                rule.is_by_name() ? fmt::format(", Rules{{\"{}\"}}", rule.logical) : ", the rule " + rule.to_string());
  }

  [[noreturn]] void fail_uneven(size_t d, const std::vector<std::string>& axes, const std::string& rule) const {
    std::vector<std::string> sizes;
    for (const std::string& axis : axes)
      if (mesh_.has_axis(axis)) sizes.push_back(fmt::format("\"{}\" = {}", axis, mesh_.size(axis)));
    const std::string name = axes_[d].is_none() ? "" : fmt::format(" \"{}\"", axes_[d].name());
    fail_at(
        ErrorKind::not_divisible,
        fmt::format("dim {}{} = {} is not divisible by mesh ax{} {}. Change the dim{} or the mesh. With Uneven::pad "
                    "the dim is padded.",
                    d, name, shape_[d], sizes.size() == 1 ? "is" : "es", fmt::join(sizes, " x "), rule));
  }

  Mesh mesh_;
  const Rules& rules_;
  const Axes& axes_;
  const Shape& shape_;
  std::string_view verb_, path_;
  bool all_pad_;
  std::vector<SpecEntry> entries_;
  std::vector<bool> settled_;
  std::vector<const Rule*> indivisible_;
  const Rule* too_long_ = nullptr;
  std::set<std::string> taken_;
  RuleResolution result_;
};

}  // namespace

RuleResolution walk_rules(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
                          std::string_view path, Uneven uneven) {
  if (current_survey) current_survey->push_back({std::string(verb), std::string(path), axes, shape, !rules.empty()});
  return Resolver(mesh, rules, axes, shape, verb, path, uneven).resolve();
}

RuleSurvey::RuleSurvey() : current_(current_survey, &asked_) {}

}  // namespace tessera::detail
