// Rules resolved against one array's names and shape.
#include "sharding/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "sharding/error.h"

namespace tessera {

namespace detail {
struct LayoutImpl {
  Mesh mesh;
  Rules rules;
};
}  // namespace detail

std::string Rule::to_string() const {
  if (mesh_axes.empty()) return fmt::format("\"{}\" -> replicated", logical);
  return fmt::format("\"{}\" -> \"{}\"", logical, fmt::join(mesh_axes, "\", \""));
}

std::string Rules::to_string() const {
  std::vector<std::string> lines;
  for (const Rule& rule : *this) lines.push_back(rule.to_string());
  return fmt::format("{}", fmt::join(lines, ", "));
}

namespace {

class Resolver {
 public:
  Resolver(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
           std::string_view path)
      : mesh_(mesh),
        rules_(rules),
        axes_(axes),
        shape_(shape),
        verb_(verb),
        path_(path),
        entries_(axes.size()),
        settled_(axes.size()),
        indivisible_(axes.size(), nullptr) {}

  Resolution resolve() {
    if (axes_.size() != shape_.size())
      fail_at(ErrorKind::rank_mismatch, fmt::format("{} names for an array of shape {}. Give one name to each dim.",
                                                    axes_.to_string(), tessera::to_string(shape_)));
    for (size_t d = 0; d < axes_.size(); ++d) check_name(d);
    for (const Rule& rule : rules_)
      for (size_t d = 0; d < axes_.size(); ++d)
        if (!axes_[d].is_mesh_axis() && axes_[d].name() == rule.logical) consider(rule, d);
    for (size_t d = 0; d < axes_.size(); ++d)
      if (!settled_[d] && indivisible_[d]) fail_uneven(d);
    result_.spec = PartitionSpec(std::move(entries_));
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail_at(ErrorKind kind, const std::string& message) const {
    fail(kind, verb_, path_.empty() ? message : fmt::format("{}: {}", path_, message));
  }

  void check_name(size_t d) {
    const AxisName& name = axes_[d];
    if (name.is_none())
      settled_[d] = true;
    else if (name.is_mesh_axis())
      take_directly(name.name(), d);
    else if (std::none_of(rules_.begin(), rules_.end(), [&](const Rule& r) { return r.logical == name.name(); }))
      fail_unknown(d);
  }

  void take_directly(const std::string& axis, size_t d) {
    if (!mesh_.has_axis(axis))
      fail_at(ErrorKind::unknown_axis,
              fmt::format("dim {} names the mesh axis \"{}\", the mesh is ({}). Use one of its axes.", d, axis,
                          mesh_.to_string()));
    if (!taken_.insert(axis).second)
      fail_at(ErrorKind::duplicate_axis,
              fmt::format("the mesh axis \"{}\" is named by two dims. An axis can cut one dim only.", axis));
    const Rule direct(axis, axis);
    if (shape_[d] % mesh_.size(axis)) indivisible_[d] = nullptr, fail_uneven_by(d, direct);
    entries_[d] = SpecEntry(axis);
    settled_[d] = true;
  }

  void consider(const Rule& rule, size_t d) {
    if (settled_[d]) return decide(rule, d, false, "an earlier rule took the dim");
    std::vector<std::string> present;
    int64_t n = 1;
    for (const std::string& axis : rule.mesh_axes) {
      if (!mesh_.has_axis(axis)) continue;
      if (taken_.contains(axis))
        return decide(rule, d, false, fmt::format("mesh axis \"{}\" is taken by another dim", axis));
      present.push_back(axis);
      n *= mesh_.size(axis);
    }
    if (shape_[d] % n) {
      indivisible_[d] = &rule;
      return decide(rule, d, false, fmt::format("{} is not divisible by {}", shape_[d], n));
    }
    taken_.insert(present.begin(), present.end());
    entries_[d] = SpecEntry(std::move(present));
    settled_[d] = true;
    decide(rule, d, true, "");
  }

  void decide(const Rule& rule, size_t d, bool matched, std::string reason) {
    result_.decisions.push_back({static_cast<int>(d), rule.to_string(), matched, std::move(reason)});
  }

  [[noreturn]] void fail_unknown(size_t d) const {
    std::set<std::string> known;
    for (const Rule& rule : rules_) known.insert("\"" + rule.logical + "\"");
    fail_at(ErrorKind::unknown_axis,
            fmt::format("dim {} is named \"{}\", which is in no rule. The rules know: {}. Add {{\"{}\", replicated}} "
                        "to keep it whole.",
                        d, axes_[d].name(), known.empty() ? "nothing" : fmt::format("{}", fmt::join(known, ", ")),
                        axes_[d].name()));
  }

  [[noreturn]] void fail_uneven(size_t d) const { fail_uneven_by(d, *indivisible_[d]); }

  [[noreturn]] void fail_uneven_by(size_t d, const Rule& rule) const {
    std::vector<std::string> sizes;
    for (const std::string& axis : rule.mesh_axes)
      if (mesh_.has_axis(axis)) sizes.push_back(fmt::format("\"{}\" = {}", axis, mesh_.size(axis)));
    fail_at(ErrorKind::uneven,
            fmt::format("dim {} \"{}\" = {} is not divisible by mesh ax{} {}. Change Rules{{\"{}\"}} or the mesh.", d,
                        axes_[d].name(), shape_[d], sizes.size() == 1 ? "is" : "es", fmt::join(sizes, " x "),
                        rule.logical));
  }

  Mesh mesh_;
  const Rules& rules_;
  const Axes& axes_;
  const Shape& shape_;
  std::string_view verb_, path_;
  std::vector<SpecEntry> entries_;
  std::vector<bool> settled_;
  std::vector<const Rule*> indivisible_;
  std::set<std::string> taken_;
  Resolution result_;
};

}  // namespace

namespace {

void check_rule(const Rule& rule) {
  if (std::set<std::string>(rule.mesh_axes.begin(), rule.mesh_axes.end()).size() != rule.mesh_axes.size())
    fail(ErrorKind::duplicate_axis, "Layout",
         fmt::format("the rule {} names a mesh axis twice. Name each once.", rule.to_string()));
}

// Tells any two tables apart, whatever characters are in their names.
std::string identity(const Rules& rules) {
  std::string text;
  for (const Rule& rule : rules) {
    text += fmt::format("{}:{}{{", rule.logical.size(), rule.logical);
    for (const std::string& axis : rule.mesh_axes) text += fmt::format("{}:{}", axis.size(), axis);
    text += '}';
  }
  return text;
}

}  // namespace

Layout::Layout(Mesh mesh, Rules rules) {
  if (mesh.empty()) fail(ErrorKind::bad_argument, "Layout", "no mesh given. Make one with make_mesh.");
  std::for_each(rules.begin(), rules.end(), check_rule);
  static std::mutex mutex;
  static std::map<std::pair<const detail::MeshImpl*, std::string>, std::unique_ptr<detail::LayoutImpl>> layouts;
  std::lock_guard lock(mutex);
  auto& entry = layouts[{mesh.impl(), identity(rules)}];
  if (!entry) entry = std::make_unique<detail::LayoutImpl>(detail::LayoutImpl{mesh, std::move(rules)});
  impl_ = entry.get();
}

Mesh Layout::mesh() const { return impl_->mesh; }
const Rules& Layout::rules() const { return impl_->rules; }

Resolution Layout::resolve(const Axes& axes, const Shape& shape, std::string_view verb, std::string_view path) const {
  return Resolver(impl_->mesh, impl_->rules, axes, shape, verb, path).resolve();
}

}  // namespace tessera
