// Rules and meshes of the known families of parallelism, derived from the roles of a program's names.
#include "nn/report/strategy_candidates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "sharding/base/text.h"

namespace tessera::nn::detail {

// ---- roles of names, by their arrays, their neighboring names and their numbers of elements

namespace {

using tessera::detail::NamedDims;

bool is_constraint(const NamedDims& array) { return array.verb == "with_sharding_constraint"; }
bool is_activation(const NamedDims& array) {
  return is_constraint(array) || array.verb == "device_put" || array.verb == "from_process_local";
}
// Returns true for arrays that were placed, restored or read from a file.
bool is_parameter(const NamedDims& array) { return !is_activation(array) && !array.path.empty(); }

// Occurrences of a name.
struct Uses {
  double elements = 0;  // elements of parameters
  double matrices = 0;  // elements of matrices: parameters that also have another named dimension
  bool in_activations = false, in_constraints = false;
  bool is_first_dim = false, is_later_dim = false;  // positions of the name in activations
};

class Names {
 public:
  explicit Names(const std::vector<NamedDims>& asked) {
    std::set<std::string> seen;
    for (const NamedDims& array : asked)
      if (!is_parameter(array) || seen.insert(array.path).second) count(array);
  }

  const Uses& operator[](const std::string& name) const { return uses_.at(name); }
  double elements() const { return elements_; }
  AxisRoles roles;

 private:
  void count(const NamedDims& array) {
    const auto is_named = [](const AxisName& axis) { return !axis.is_none() && !axis.is_mesh_axis(); };
    const double size = std::accumulate(array.shape.begin(), array.shape.end(), 1.0, std::multiplies<>());
    const bool is_matrix = std::count_if(array.axes.begin(), array.axes.end(), is_named) > 1;
    if (is_parameter(array)) elements_ += size;
    for (size_t d = 0; d < array.axes.size(); ++d)
      if (is_named(array.axes[d])) count(array, d, is_matrix, size);
  }

  void count(const NamedDims& array, size_t d, bool is_matrix, double size) {
    const std::string& name = array.axes[d].name();
    if (!uses_.contains(name)) roles.names.push_back(name);
    int64_t& divisor = roles.divisors[name];
    divisor = std::gcd(divisor, array.shape[d]);
    Uses& uses = uses_[name];
    if (is_parameter(array)) {
      uses.elements += size;
      if (is_matrix) uses.matrices += size;
    } else if (is_activation(array)) {
      uses.in_activations = true;
      uses.in_constraints |= is_constraint(array);
      (d == 0 ? uses.is_first_dim : uses.is_later_dim) = true;
    }
  }

  std::map<std::string, Uses> uses_;
  double elements_ = 0;
};

// Returns the name in most elements of matrices. Among equals, it prefers one that activations have, for example the
// input of the first layer.
std::string stream_of(const Names& names) {
  std::string best;
  const auto is_better = [&](const Uses& a, const Uses& b) {
    return a.matrices != b.matrices ? a.matrices > b.matrices : a.in_activations && !b.in_activations;
  };
  for (const std::string& name : names.roles.names)
    if (names[name].matrices > 0 && (best.empty() || is_better(names[name], names[best]))) best = name;
  return best;
}

// Returns the name of the rows of a batch; "" for a program without names for activations.
std::string batch_of(const Names& names) {
  for (const std::string& name : names.roles.names)
    if (names[name].is_first_dim && !names[name].is_later_dim && names[name].elements == 0) return name;
  return "";
}

using Elements = std::map<int64_t, std::set<std::string>>;  // number -> paths below this element

// Returns true for the elements of a vector, which have a path in common. Elements of a tuple have none: for example
// the states of an optimizer's parts, some without arrays.
bool is_vector(const Elements& elements) {
  if (elements.rbegin()->first + 1 != std::ssize(elements)) return false;
  const std::set<std::string>& first = elements.begin()->second;
  return std::any_of(first.begin(), first.end(), [&](const std::string& path) {
    return std::all_of(elements.begin(), elements.end(), [&](const auto& e) { return e.second.contains(path); });
  });
}

// Numbered elements below one field, and their bytes.
struct Numbered {
  std::map<std::string, Elements> by_path;
  int64_t bytes = 0;

  // Returns the common number of elements of the vectors; 0: not all are vectors.
  int64_t depth() const {
    int64_t common = 0;
    for (const auto& [path, elements] : by_path) {
      if (!is_vector(elements)) return 0;
      common = std::gcd(common, std::ssize(elements));
    }
    return common;
  }
};

// Returns the outermost numbered elements of each array, by field: layers of model.layers.2.mlp.up.kernel.
std::map<std::string, Numbered> numbered_in(const std::vector<PlacementRow>& rows) {
  std::map<std::string, Numbered> all;
  for (const PlacementRow& row : rows) {
    size_t name = 0;
    for (size_t begin = row.path.find('.'); begin != std::string::npos; begin = row.path.find('.', begin + 1)) {
      const size_t end = std::min(row.path.find('.', begin + 1), row.path.size());
      const std::string part = row.path.substr(begin + 1, end - begin - 1);
      if (const std::optional number = tessera::detail::parse_number<int64_t>(part)) {
        Numbered& numbered = all[row.path.substr(name, begin - name)];
        numbered.by_path[row.path.substr(0, begin)][*number].insert(row.path.substr(end));
        numbered.bytes += row.bytes;
        break;
      }
      name = begin + 1;
    }
  }
  return all;
}

void find_blocks(const std::vector<PlacementRow>& rows, AxisRoles& roles) {
  int64_t most = 0;
  for (const auto& [name, numbered] : numbered_in(rows)) {
    const bool is_dim = std::find(roles.names.begin(), roles.names.end(), name) != roles.names.end();
    if (is_dim || numbered.depth() < 2 || numbered.bytes <= most) continue;
    most = numbered.bytes;
    roles.blocks = name;
    roles.depth = numbered.depth();
  }
}

}  // namespace

AxisRoles roles_of(const std::vector<NamedDims>& asked, const std::vector<PlacementRow>& rows) {
  const Names names(asked);
  AxisRoles roles = names.roles;
  constexpr double a_few = 0.1;
  find_blocks(rows, roles);
  roles.batch = batch_of(names);
  roles.stream = stream_of(names);
  for (const std::string& name : roles.names) {
    const Uses& uses = names[name];
    if (name == roles.batch || name == roles.stream) continue;
    const bool is_sequence = uses.is_later_dim && uses.elements <= a_few * names.elements();
    if (is_sequence) roles.sequence.push_back(name);
    if (is_sequence && uses.in_constraints) roles.constrained.push_back(name);
    if (!is_sequence && uses.matrices > 0) roles.inner.push_back(name);
  }
  roles.stream_is_everywhere = !roles.stream.empty() && names[roles.stream].elements >= (1 - a_few) * names.elements();
  return roles;
}

// ---- candidates

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool cuts_layers(AlongModel use) { return use == AlongModel::layers || use == AlongModel::layers_and_sequence; }
bool cuts_weights(WeightsAlongData weights) { return weights >= WeightsAlongData::cut; }

// Returns the names to shard over "model": those whose dimensions its size divides. Other names are replicated.
std::vector<std::string> cut_along_model(const StrategyCandidate& c, const AxisRoles& roles) {
  std::vector<std::string> names;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& name : more)
      if (roles.divides(c.model, name) && !contains(c.whole_layers, name)) names.push_back(name);
  };
  if (cuts_layers(c.along_model)) add(roles.inner);
  if (c.along_model == AlongModel::layers_and_sequence) add(roles.constrained);
  if (c.along_model == AlongModel::sequence) add(roles.sequence);
  return names;
}

bool can_cut_weights(const StrategyCandidate& c, const AxisRoles& roles) {
  return !roles.stream_is_everywhere || roles.divides(c.data, roles.stream);
}

}  // namespace

std::vector<MeshAxis> StrategyCandidate::mesh() const {
  std::vector<MeshAxis> axes{{"pipe", pipe}, {"replica", replica}, {"data", data}, {"model", model}};
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.size == 1; });
  return axes.empty() ? std::vector<MeshAxis>{{"data", 1}} : axes;
}

Rules StrategyCandidate::rules(const AxisRoles& roles) const {
  Rules rules;
  if (pipe > 1) rules.push_back({roles.blocks, "pipe"});
  std::vector<std::string> rows;
  if (replica > 1) rows.push_back("replica");
  if (data > 1) rows.push_back("data");
  if (!roles.batch.empty() && !rows.empty()) rules.push_back({roles.batch, rows});
  if (model > 1)
    for (const std::string& name : cut_along_model(*this, roles)) rules.push_back({name, "model"});
  if (cuts_weights(weights) && data > 1) {
    if (roles.stream_is_everywhere)
      rules.push_back({roles.stream, "data"});
    else
      rules.push_back({ParamPattern{.min_size = 1024}, longest_dim("data")});
  }
  const Rules cut = rules;
  for (const std::string& name : roles.names)
    if (std::none_of(cut.begin(), cut.end(), [&](const Rule& rule) { return rule.logical == name; }))
      rules.push_back({name, replicated});
  return rules;
}

GradientOptions StrategyCandidate::gradients() const {
  GradientOptions options;
  options.reshard_after_forward = weights != WeightsAlongData::cut_and_kept;
  if (weights == WeightsAlongData::cut_state) options.shard_gradients_over = {"data"};
  return options;
}

PipelineOptions StrategyCandidate::pipeline() const {
  return {.num_micro_batches = num_micro_batches, .schedule = PipelineSchedule::one_f_one_b};
}

StrategyCandidate with_micro_batches(StrategyCandidate c, const AxisRoles& roles) {
  c.num_micro_batches = 1;
  if (c.pipe == 1 || roles.batch.empty()) return c;
  for (int64_t n = 4 * c.pipe; n > 1 && c.num_micro_batches == 1; --n)
    if (roles.divides(c.replica * c.data * n, roles.batch)) c.num_micro_batches = n;
  return c;
}

std::string StrategyCandidate::name(const AxisRoles& roles) const {
  constexpr const char* by_weights[] = {"data parallel", "ZeRO-1", "fully sharded",
                                        "fully sharded, gathered once a step"};
  constexpr const char* by_model[] = {"", "tensor parallel", "tensor and sequence parallel", "sequence parallel"};
  std::string along_data = data * replica == 1 ? "" : by_weights[static_cast<size_t>(weights)];
  if (replica > 1) along_data.replace(0, std::string("fully").size(), "hybrid");
  std::string by = by_model[static_cast<size_t>(along_model)];
  if (!whole_layers.empty()) by += fmt::format(" of {}", fmt::join(cut_along_model(*this, roles), ", "));
  std::vector<std::string> parts{pipe > 1 ? "pipeline" : "", along_data, by};
  std::erase(parts, "");
  return parts.empty() ? "one device" : fmt::format("{}", fmt::join(parts, " x "));
}

bool is_possible(const StrategyCandidate& c, const AxisRoles& roles) {
  const bool divides_rows = roles.batch.empty() || roles.divides(c.replica * c.data, roles.batch);
  if (!divides_rows || (c.data > 1 && roles.batch.empty() && !cuts_weights(c.weights))) return false;
  if (cuts_weights(c.weights) && (c.data == 1 || !can_cut_weights(c, roles))) return false;
  if (c.weights == WeightsAlongData::cut_state && c.data == 1) return false;
  if (c.replica > 1 && !cuts_weights(c.weights)) return false;
  if ((c.model > 1) != (c.along_model != AlongModel::nothing)) return false;
  if ((c.pipe > 1) != (c.num_micro_batches > 1)) return false;
  if (c.pipe > 1 && (roles.depth % c.pipe || roles.batch.empty() || cuts_weights(c.weights) ||
                     !roles.divides(c.data * c.num_micro_batches, roles.batch)))
    return false;
  if (c.model == 1) return true;
  const std::vector<std::string> names = cut_along_model(c, roles);
  const auto any_of = [&](const std::vector<std::string>& kind) {
    return std::any_of(kind.begin(), kind.end(), [&](const std::string& name) { return contains(names, name); });
  };
  if (cuts_layers(c.along_model) && !any_of(roles.inner)) return false;
  return c.along_model != AlongModel::layers_and_sequence || any_of(roles.constrained) ? !names.empty() : false;
}

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) divisors.push_back(d);
  return divisors;
}

}  // namespace tessera::nn::detail
