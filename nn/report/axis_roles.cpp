// Names counted: in which arrays, beside which others, how many elements.
#include "nn/report/axis_roles.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "sharding/base/parse_number.h"

namespace tessera::nn::detail {

namespace {

using tessera::detail::NamedDims;

bool is_constraint(const NamedDims& array) { return array.verb == "with_sharding_constraint"; }
bool is_activation(const NamedDims& array) {
  return is_constraint(array) || array.verb == "device_put" || array.verb == "from_process_local";
}
// Placed, restored or read from a file.
bool is_parameter(const NamedDims& array) { return !is_activation(array) && !array.path.empty(); }

// Where a name occurs.
struct Uses {
  double elements = 0;  // of parameters
  double matrices = 0;  // elements of those that have another named dim as well
  bool in_activations = false, in_constraints = false;
  bool is_first_dim = false, is_later_dim = false;  // of activations
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

// In most elements of matrices; of several, one that activations have, as the input of the first layer.
std::string stream_of(const Names& names) {
  std::string best;
  const auto is_better = [&](const Uses& a, const Uses& b) {
    return a.matrices != b.matrices ? a.matrices > b.matrices : a.in_activations && !b.in_activations;
  };
  for (const std::string& name : names.roles.names)
    if (names[name].matrices > 0 && (best.empty() || is_better(names[name], names[best]))) best = name;
  return best;
}

// Of a program without names for activations none.
std::string batch_of(const Names& names) {
  for (const std::string& name : names.roles.names)
    if (names[name].is_first_dim && !names[name].is_later_dim && names[name].elements == 0) return name;
  return "";
}

using Elements = std::map<int64_t, std::set<std::string>>;  // by number: the paths below each

// Those of a tuple have nothing in common: as the states of an optimizer's parts, of which some have no arrays.
bool is_vector(const Elements& elements) {
  if (elements.rbegin()->first + 1 != std::ssize(elements)) return false;
  const std::set<std::string>& first = elements.begin()->second;
  return std::any_of(first.begin(), first.end(), [&](const std::string& path) {
    return std::all_of(elements.begin(), elements.end(), [&](const auto& e) { return e.second.contains(path); });
  });
}

// What is numbered below one field, and its bytes.
struct Numbered {
  std::map<std::string, Elements> by_path;
  int64_t bytes = 0;

  // How many elements each vector has; 0: not all are vectors.
  int64_t depth() const {
    int64_t common = 0;
    for (const auto& [path, elements] : by_path) {
      if (!is_vector(elements)) return 0;
      common = std::gcd(common, std::ssize(elements));
    }
    return common;
  }
};

// The outermost of each array, by their fields: layers of model.layers.2.mlp.up.kernel.
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

}  // namespace tessera::nn::detail
