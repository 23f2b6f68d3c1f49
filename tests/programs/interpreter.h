// Runs a program's nodes on LibTorch tensors, on arrays without a mesh, or on arrays on a mesh.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "nn/transformations/jvp.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/array/dlpack.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/shard_map.h"
#include "tests/programs/program.h"

namespace tessera::programs {

// ---- functions of nodes, for tensors and for arrays

inline at::Tensor sliced(const at::Tensor& x, int64_t dim, int64_t start, int64_t size) {
  return x.narrow(dim, start, size);
}
inline Array sliced(const Array& x, int64_t dim, int64_t start, int64_t size) {
  Shape from(x.ndim(), 0), to = x.shape();
  from[dim] = start, to[dim] = start + size;
  return slice(x, from, to);
}
inline at::Tensor joined(const std::vector<at::Tensor>& x, int64_t dim) { return at::cat(x, dim); }
inline Array joined(const std::vector<Array>& x, int64_t dim) { return concatenate(x, static_cast<int>(dim)); }
inline at::Tensor shaped(const at::Tensor& x, const Shape& shape) { return x.reshape(shape); }
inline Array shaped(const Array& x, const Shape& shape) { return reshape(x, shape); }
inline at::Tensor repeated(const at::Tensor& x, const Shape& times) { return x.repeat(times); }
inline Array repeated(const Array& x, const Shape& times) { return tile(x, times); }
inline at::Tensor summed(const at::Tensor& x, int n) {
  std::vector<int64_t> dims(n);
  for (int i = 0; i < n; ++i) dims[i] = i;
  return n ? x.sum(dims) : x;
}
inline Array summed(const Array& x, int n) { return n ? sum(x, detail::consecutive_dims(n)) : x; }
inline at::Tensor total(const at::Tensor& x) { return x.sum(); }
inline Array total(const Array& x) { return sum(x); }
inline at::Tensor squashed(const at::Tensor& x) { return at::sigmoid(x); }
inline Array squashed(const Array& x) { return sigmoid(x); }
inline at::Tensor rounded(const at::Tensor& x, bool brain) {
  return x.to(brain ? at::kBFloat16 : at::kHalf).to(at::kDouble);
}
inline Array rounded(const Array& x, bool brain) { return astype(astype(x, brain ? bfloat16 : float16), float64); }
inline at::Tensor largest(const std::vector<at::Tensor>& x) { return x.size() == 1 ? x[0] : at::amax(at::stack(x), 0); }
inline Array largest(const std::vector<Array>& x) { return x.size() == 1 ? x[0] : max(stack(x), 0); }
inline Shape shape_of(const at::Tensor& x) { return x.sizes().vec(); }
inline Shape shape_of(const Array& x) { return x.shape(); }
inline at::Tensor called(const Case& c, const std::vector<at::Tensor>& x) { return c.function.theirs(x); }
inline Array called(const Case& c, const std::vector<Array>& x) { return c.function.ours(x); }

inline at::Tensor through_dlpack(const at::Tensor& x) { return x.detach(); }
inline Array through_dlpack(const Array& x) {
  return from_dlpack(to_dlpack(stop_gradient(x.is_committed() ? gather(x) : x)));
}

inline at::Tensor as_double(const at::Tensor& x) { return x.to(at::kDouble); }
inline Array as_double(const Array& x) { return x.dtype() == float64 ? x : astype(x, float64); }

// Returns new variables with these values, or new arrays: several devices may share one.
inline std::vector<at::Tensor> distinct_variables(const std::vector<at::Tensor>& x) {
  std::vector<at::Tensor> at_x;
  for (const at::Tensor& t : x) at_x.push_back(t.requires_grad() ? t.view_as(t) : t.detach().requires_grad_());
  return at_x;
}
inline std::vector<Array> distinct_variables(const std::vector<Array>& x) {
  std::vector<Array> distinct;
  for (const Array& one : x) distinct.push_back(x.size() > 1 ? one * 1 : one);
  return distinct;
}

// Returns the derivatives of f's results in the direction `tangents`.
template <class V>
using ListFunction = std::function<std::vector<V>(const std::vector<V>&)>;
inline std::vector<at::Tensor> jvp_of(const ListFunction<at::Tensor>& f, const std::vector<at::Tensor>& x,
                                      const std::vector<at::Tensor>& tangents) {
  const at::AutoGradMode on(true);
  const std::vector<at::Tensor> at_x = distinct_variables(x), y = f(at_x);
  std::vector<at::Tensor> u, pulled_back, directions;
  for (const at::Tensor& t : y) u.push_back(at::zeros_like(t).requires_grad_());
  const std::vector<at::Tensor> g = torch::autograd::grad(y, at_x, u, true, true, true);
  for (size_t i = 0; i < g.size(); ++i)
    if (g[i].defined()) pulled_back.push_back(g[i]), directions.push_back(tangents[i]);
  std::vector<at::Tensor> result = torch::autograd::grad(pulled_back, u, directions, true, true, true);
  for (size_t i = 0; i < u.size(); ++i)
    if (!result[i].defined()) result[i] = at::zeros_like(u[i]);
  return result;
}
inline std::vector<Array> jvp_of(const ListFunction<Array>& f, const std::vector<Array>& x,
                                 const std::vector<Array>& tangents) {
  return nn::jvp(f)(distinct_variables(x), tangents).second;
}

// Returns the gradients of f at x. They can be differentiated again if `differentiable`.
inline std::vector<at::Tensor> gradients_of(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                                            const std::vector<at::Tensor>& x, bool differentiable) {
  const at::AutoGradMode on(true);
  const std::vector<at::Tensor> at_x = distinct_variables(x);
  const at::Tensor loss = f(at_x);
  std::vector<at::Tensor> g = torch::autograd::grad({loss}, at_x, {}, true, true, true);
  for (size_t i = 0; i < g.size(); ++i) {
    if (!g[i].defined()) g[i] = at::zeros_like(x[i]);
    if (!differentiable) g[i] = g[i].detach();
  }
  return g;
}
inline std::vector<Array> gradients_of(const std::function<Array(const std::vector<Array>&)>& f,
                                       const std::vector<Array>& x, bool differentiable) {
  GradientOptions options;
  if (!differentiable) options.differentiable = false;
  return nn::grad([&](const std::vector<Array>& z) { return f(z); }, options)(distinct_variables(x));
}

inline int64_t num_elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Returns x with this shape: reshaped if the number of elements is equal, else sliced, tiled or summed.
template <class V>
V fitted(const V& x, const Shape& shape) {
  const Shape from = shape_of(x);
  if (from == shape) return x;
  if (num_elements(from) == num_elements(shape)) return shaped(x, shape);
  V y = x;
  if (from.size() > shape.size()) y = summed(y, static_cast<int>(from.size() - shape.size()));
  if (from.size() < shape.size()) {
    Shape wide(shape.size() - from.size(), 1);
    wide.insert(wide.end(), from.begin(), from.end());
    y = shaped(y, wide);
  }
  Shape times;
  const Shape now = shape_of(y);
  for (size_t d = 0; d < shape.size(); ++d) times.push_back(now[d] ? (shape[d] + now[d] - 1) / now[d] : 1);
  if (std::any_of(times.begin(), times.end(), [](int64_t n) { return n > 1; })) y = repeated(y, times);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape_of(y)[d] > shape[d]) y = sliced(y, static_cast<int64_t>(d), 0, shape[d]);
  return y;
}

// ---- the device indices of a mesh, to simulate a shard_map on lists with one value per device

class Grid {
 public:
  explicit Grid(const std::vector<MeshAxis>& axes) : axes_(axes) {}

  int size() const {
    int n = 1;
    for (const MeshAxis& axis : axes_) n *= static_cast<int>(axis.size);
    return n;
  }
  int axis(const std::string& name) const {
    for (size_t i = 0; i < axes_.size(); ++i)
      if (axes_[i].name == name) return static_cast<int>(i);
    return -1;
  }
  uint32_t set(const std::vector<std::string>& names) const {
    uint32_t axes = 0;
    for (const std::string& name : names) axes |= 1u << axis(name);
    return axes;
  }
  int count(const std::vector<std::string>& names) const {
    int n = 1;
    for (const std::string& name : names) n *= static_cast<int>(axes_[axis(name)].size);
    return n;
  }
  // Returns the index of a device along the axes `names`, the major axis first.
  int number(int device, const std::vector<std::string>& names) const {
    int n = 0;
    for (const std::string& name : names)
      n = n * static_cast<int>(axes_[axis(name)].size) + coordinate(device, axis(name));
    return n;
  }
  // Returns the device of the same group along `names` that has this index.
  int other(int device, const std::vector<std::string>& names, int number) const {
    for (size_t i = names.size(); i-- > 0;) {
      const int k = axis(names[i]), size = static_cast<int>(axes_[k].size);
      device += (number % size - coordinate(device, k)) * stride(k);
      number /= size;
    }
    return device;
  }
  // Returns the first device that has the same coordinates as `device` along the axes in `vary`.
  int first(int device, uint32_t vary) const {
    for (size_t k = 0; k < axes_.size(); ++k)
      if (!(vary >> k & 1)) device -= coordinate(device, static_cast<int>(k)) * stride(static_cast<int>(k));
    return device;
  }

 private:
  int stride(int k) const {
    int n = 1;
    for (size_t i = k + 1; i < axes_.size(); ++i) n *= static_cast<int>(axes_[i].size);
    return n;
  }
  int coordinate(int device, int k) const { return device / stride(k) % static_cast<int>(axes_[k].size); }

  std::vector<MeshAxis> axes_;
};

// The values of a node's operand or result: one outside shard_map, one per device inside.
template <class V>
using Lanes = std::vector<V>;

template <class V>
struct Context {
  Grid grid;
  std::optional<Mesh> mesh = std::nullopt;  // nullopt: nothing is placed, and a shard_map is simulated
  std::function<V(const V&)> touch = {};    // applied to every computed value, to add noise
  std::function<void(const Node&, const std::vector<Lanes<V>>&, const std::vector<Kind>&)> observe = {};
  std::vector<Kind> around = {};
};

template <class V>
std::vector<Lanes<V>> run(const Body& body, std::vector<Lanes<V>> values, Context<V>& context);

// Returns each device's block of x.
template <class V>
Lanes<V> blocks_of(const V& x, const PartitionSpec& spec, const Grid& grid) {
  Lanes<V> lanes;
  if (spec.entries().size() > shape_of(x).size()) throw std::invalid_argument("a sharding of more dimensions");
  for (int device = 0; device < grid.size(); ++device) {
    V block = x;
    for (size_t d = 0; d < spec.entries().size(); ++d) {
      const auto& axes = spec.entries()[d].axes();
      const int64_t size = shape_of(x)[d] / grid.count(axes);
      if (!axes.empty()) block = sliced(block, static_cast<int64_t>(d), grid.number(device, axes) * size, size);
    }
    lanes.push_back(block);
  }
  return lanes;
}

template <class V>
V sum_of(const Lanes<V>& lanes) {
  V total = lanes[0];
  for (size_t i = 1; i < lanes.size(); ++i) total = total + lanes[i];
  return total;
}

// Returns the values of the devices in `device`'s group along `axes`, in order.
template <class V>
Lanes<V> group_of(const Lanes<V>& lanes, int device, const std::vector<std::string>& axes, const Grid& grid) {
  Lanes<V> group;
  for (int i = 0; i < grid.count(axes); ++i) group.push_back(lanes[grid.other(device, axes, i)]);
  return group;
}

template <class V>
V assembled(Lanes<V> lanes, const PartitionSpec& spec, const Grid& grid) {
  const auto each = [&](const std::vector<std::string>& axes, const auto& f) {
    if (axes.empty()) return;
    Lanes<V> next;
    for (int device = 0; device < grid.size(); ++device) next.push_back(f(group_of(lanes, device, axes, grid)));
    lanes = std::move(next);
  };
  for (size_t d = 0; d < spec.entries().size(); ++d)
    each(spec.entries()[d].axes(), [&](const Lanes<V>& group) { return joined(group, static_cast<int64_t>(d)); });
  each(spec.unreduced_axes(), sum_of<V>);
  return lanes[0];
}

template <class V>
Lanes<V> simulated_collective(const Node& node, const Lanes<V>& x, const Grid& grid) {
  const auto& axes = node.axes.axes();
  const int n = grid.count(axes);
  const auto part = [&](const V& value, int dim, int i) {
    const int64_t size = shape_of(value)[dim] / n;
    return sliced(value, dim, i * size, size);
  };
  Lanes<V> result;
  for (int device = 0; device < grid.size(); ++device) {
    const Lanes<V> group = group_of(x, device, axes, grid);
    const int self = grid.number(device, axes);
    switch (static_cast<Collective>(node.which)) {
      case Collective::psum:
        result.push_back(sum_of(group));
        break;
      case Collective::pmean:
        result.push_back(sum_of(group) * (1.0 / n));
        break;
      case Collective::pmax:
        result.push_back(largest(group));
        break;
      case Collective::all_gather:
        result.push_back(joined(group, node.dim));
        break;
      case Collective::psum_scatter:
        result.push_back(part(sum_of(group), node.dim, self));
        break;
      case Collective::ppermute:
        result.push_back(group[(self + n - 1) % n]);
        break;
      case Collective::all_to_all: {
        Lanes<V> parts;
        for (const V& other : group) parts.push_back(part(other, node.dim, self));
        result.push_back(joined(parts, node.other_dim));
      }
    }
  }
  return result;
}

Array collective(const Node& node, const Array& x);                       // by the library
Array constrained(const Array& x, const PartitionSpec& spec, Mesh mesh);  // by the library

// Returns the loss of an inner gradient: half the sum of the squared results. Equal values on several devices count
// once.
template <class V>
V inner_loss(const Node& node, const std::vector<Lanes<V>>& results, const Grid& grid) {
  std::optional<V> loss;
  for (size_t r = 0; r < results.size(); ++r) {
    const Lanes<V>& lanes = results[r];
    for (size_t device = 0; device < lanes.size(); ++device) {
      const uint32_t vary = lanes.size() > 1 ? node.vary[node.body.results[r]] : 0;
      if (lanes.size() > 1 && grid.first(static_cast<int>(device), vary) != static_cast<int>(device)) continue;
      const V term = total(lanes[device] * lanes[device]) * 0.5;
      loss = loss ? *loss + term : term;
    }
  }
  return *loss;
}

// Devices along axes over which a value does not vary share it: `place` is each device's index among the distinct ones.
template <class V>
struct DistinctLanes {
  std::vector<V> values;
  std::vector<int> place;

  DistinctLanes(const Node& node, int value, const Lanes<V>& all, const Grid& grid) : place(all.size(), -1) {
    for (size_t device = 0; device < all.size(); ++device) {
      const int first = all.size() > 1 ? grid.first(static_cast<int>(device), node.vary[value]) : 0;
      if (place[first] < 0) place[first] = static_cast<int>(values.size()), values.push_back(all[first]);
      place[device] = place[first];
    }
  }
};

template <class V>
Lanes<V> inner_jvp(const Node& node, const std::vector<Lanes<V>>& operands, Context<V>& context) {
  const DistinctLanes<V> primals(node, 0, operands[0], context.grid);
  std::vector<int> place;
  const ListFunction<V> f = [&](const std::vector<V>& z) {
    std::vector<Lanes<V>> inside = operands;
    for (size_t device = 0; device < inside[0].size(); ++device) inside[0][device] = z[primals.place[device]];
    const DistinctLanes<V> results(node, node.body.results[0], run(node.body, std::move(inside), context)[0],
                                   context.grid);
    place = results.place;
    return results.values;
  };
  std::vector<V> directions;
  for (const V& x : primals.values) directions.push_back(x * 0.5 + 0.25);
  const std::vector<V> tangents = jvp_of(f, primals.values, directions);
  Lanes<V> result;
  for (const int i : place) result.push_back(tangents[i]);
  return result;
}

template <class V>
Lanes<V> inner_gradient(const Node& node, const std::vector<Lanes<V>>& operands, Context<V>& context) {
  const DistinctLanes<V> distinct(node, 0, operands[0], context.grid);
  const std::function<V(const std::vector<V>&)> loss = [&](const std::vector<V>& z) {
    std::vector<Lanes<V>> inside = operands;
    for (size_t device = 0; device < inside[0].size(); ++device) inside[0][device] = z[distinct.place[device]];
    return inner_loss(node, run(node.body, std::move(inside), context), context.grid);
  };
  const std::vector<V> gradients = gradients_of(loss, distinct.values, node.differentiable);
  Lanes<V> result;
  for (const int i : distinct.place) result.push_back(gradients[i]);
  return result;
}

// Runs remat or shard_map. Without a mesh, remat runs its body, and shard_map is simulated on lists of blocks.
template <class V>
std::vector<Lanes<V>> run_region(const Node& node, const std::vector<Lanes<V>>& operands, Context<V>& context) {
  if constexpr (std::is_same_v<V, Array>) {
    const auto flat = [](const auto& lists) {
      std::vector<Array> all;
      for (const auto& lanes : lists) all.insert(all.end(), lanes.begin(), lanes.end());
      return all;
    };
    const size_t lanes = operands.empty() ? 1 : operands[0].size();
    const auto unflat = [lanes](const std::vector<Array>& all) {
      std::vector<Lanes<V>> lists;
      for (size_t i = 0; i < all.size(); i += lanes) lists.emplace_back(all.begin() + i, all.begin() + i + lanes);
      return lists;
    };
    // remat calls `body` again in the backward pass, after this function has returned.
    const auto body = [&node, &context, flat, unflat](const std::vector<Array>& x) {
      return flat(run(node.body, unflat(x), context));
    };
    if (node.kind == Kind::remat) return unflat(remat(body, flat(operands), static_cast<RematPolicy>(node.which)));
    if (node.kind == Kind::shard_map && context.mesh)
      return unflat(shard_map(body, *context.mesh, Specs(node.in_specs), Specs(node.out_specs))(flat(operands)));
  }
  if (node.kind == Kind::remat) return run(node.body, operands, context);
  std::vector<Lanes<V>> inside;
  for (size_t i = 0; i < operands.size(); ++i)
    inside.push_back(blocks_of(operands[i][0], node.in_specs[i], context.grid));
  const std::vector<Lanes<V>> results = run(node.body, std::move(inside), context);
  std::vector<Lanes<V>> outside;
  for (size_t i = 0; i < results.size(); ++i)
    outside.push_back({assembled(results[i], node.out_specs[i], context.grid)});
  return outside;
}

template <class V>
std::vector<Lanes<V>> run(const Body& body, std::vector<Lanes<V>> values, Context<V>& context) {
  for (const Node& node : body.nodes) {
    std::vector<Lanes<V>> operands;
    for (const int i : node.operands) operands.push_back(values[i]);
    if (context.observe) context.observe(node, operands, context.around);
    const auto each = [&](const auto& f) {
      Lanes<V> result;
      for (size_t lane = 0; lane < (operands.empty() ? 1 : operands[0].size()); ++lane) {
        std::vector<V> x;
        for (const Lanes<V>& operand : operands) x.push_back(operand[lane]);
        result.push_back(f(x));
      }
      return result;
    };
    context.around.push_back(node.kind);
    std::vector<Lanes<V>> results;
    switch (node.kind) {
      case Kind::call:
        results.push_back(each([&](const std::vector<V>& x) { return as_double(called(cases()[node.which], x)); }));
        break;
      case Kind::fit:
        results.push_back(each([&](const auto& x) { return fitted(x[0], node.shape); }));
        break;
      case Kind::squash:
        results.push_back(each([&](const auto& x) { return squashed(x[0]) * (node.hi - node.lo) + node.lo; }));
        break;
      case Kind::scale:
        results.push_back(each([&](const auto& x) { return x[0] * node.hi; }));
        break;
      case Kind::half:
        results.push_back(each([&](const auto& x) { return rounded(x[0], node.which); }));
        break;
      case Kind::constrain:
        if constexpr (std::is_same_v<V, Array>) {
          if (context.mesh) {
            results.push_back({constrained(operands[0][0], node.spec, *context.mesh)});
            break;
          }
        }
        results.push_back(operands[0]);
        break;
      case Kind::gradient:
        results.push_back(inner_gradient(node, operands, context));
        break;
      case Kind::jvp:
        results.push_back(inner_jvp(node, operands, context));
        break;
      case Kind::dlpack:
        results.push_back(each([&](const auto& x) { return through_dlpack(x[0]); }));
        break;
      case Kind::collective:
        if constexpr (std::is_same_v<V, Array>) {
          if (context.mesh) {
            results.push_back({collective(node, operands[0][0])});
            break;
          }
        }
        results.push_back(simulated_collective(node, operands[0], context.grid));
        break;
      default:
        results = run_region(node, operands, context);
    }
    context.around.pop_back();
    for (Lanes<V>& lanes : results) {
      if (context.touch && node.kind != Kind::remat && node.kind != Kind::shard_map)
        for (V& x : lanes) x = context.touch(x);
      values.push_back(std::move(lanes));
    }
  }
  std::vector<Lanes<V>> results;
  for (const int r : body.results) results.push_back(values[r]);
  return results;
}

}  // namespace tessera::programs
