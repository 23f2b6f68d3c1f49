// Selects the parameters of each part, and splits and recombines trees.
#include "optim/wrappers/masking.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "nn/tree/filter.h"
#include "optim/transform/internal.h"
#include "sharding/base/fail.h"

namespace tessera::optim {

Labels::Labels(std::initializer_list<std::pair<std::string, Mask>> filters) {
  function_ = [filters = std::vector(filters)](const std::string& path, const nn::Leaf& parameter) {
    for (const auto& [label, takes] : filters)
      if (takes(parameter)) return label;
    std::vector<std::string> labels;
    for (const auto& entry : filters) labels.push_back(entry.first);
    fail(ErrorKind::invalid_argument, "partition",
         "{}: none of the filters ({}) takes it. Add a last one that takes all: {{\"rest\", {{}}}}.", path,
         fmt::join(labels, ", "));
  };
}

namespace detail {

void keep(const Arrays& tree, const std::vector<bool>& kept) {
  for (size_t i = 0; i < std::min(tree.size(), kept.size()); ++i)
    if (!kept[i]) *tree[i] = Array();
}

void put_back(const Arrays& into, const Arrays& from, const std::vector<bool>& kept) {
  for (size_t i = 0; i < std::min(into.size(), from.size()); ++i)
    if (kept[i]) *into[i] = *from[i];
}

void keep_labeled(const Arrays& updates, const MaskVectors& parts) {
  std::vector<bool> kept(updates.size());
  for (const std::vector<bool>& part : parts)
    for (size_t i = 0; i < std::min(kept.size(), part.size()); ++i) kept[i] = kept[i] || part[i];
  keep(updates, kept);
}

MaskVectors parts_by_label(const Labels& labels, const std::string* names, size_t count, const nn::Leaves& params) {
  MaskVectors parts(count, std::vector<bool>(params.size()));
  for (size_t i = 0; i < params.size(); ++i) {
    if (!nn::is_trainable(params[i])) continue;
    const std::string label = labels(params[i]);
    const size_t part = static_cast<size_t>(std::find(names, names + count, label) - names);
    if (part == count)
      fail(ErrorKind::invalid_argument, "partition",
           "{}: its label is \"{}\", expected one of the transforms' ({}). Add a transform of this label; "
           "set_to_zero() leaves its parameters as they are.",
           params[i].path, label, fmt::join(names, names + count, ", "));
    parts[part][i] = true;
  }
  return parts;
}

}  // namespace detail
}  // namespace tessera::optim
