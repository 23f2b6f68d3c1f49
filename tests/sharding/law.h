// The law of arrays as a property test: for any sharding, values and gradients equal those of plain LibTorch.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sharding/accounting/ledger.h"
#include "sharding/array/array_impl.h"
#include "sharding/autodiff/tape.h"
#include "sharding/base/error.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/redistribution/redistribute.h"
#include "tests/sharding/meshes.h"
#include "tests/sharding/placements_said.h"

namespace tessera::testing {

// With thousands of tiny tensors, threads would mostly wait for each other. Tests with threads set OMP_NUM_THREADS.
inline const bool one_thread = !std::getenv("OMP_NUM_THREADS") && (at::set_num_threads(1), true);

inline at::Tensor random_tensor(const Shape& shape, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(dtype));
}

inline at::Tensor random_integers(const Shape& shape, int64_t below, uint64_t seed, at::ScalarType dtype = at::kInt) {
  return at::randint(0, below, shape, at::detail::createCPUGenerator(seed), at::TensorOptions(dtype));
}

inline Array placed(const at::Tensor& t, Mesh mesh, const PartitionSpec& spec) {
  return device_put(from_tensor(t), NamedSharding(mesh, spec));
}

// Returns ones on the mesh data=4, model=2.
inline Array lying(Shape shape, const PartitionSpec& spec) {
  return device_put(ones(std::move(shape)), NamedSharding(make_mesh({{"data", 4}, {"model", 2}}), spec));
}

// Returns the unsharded value. If other processes hold parts of it, all processes must call this.
inline at::Tensor whole(const Array& x) {
  return x.is_fully_addressable() || x.impl()->type->own() == 0 ? to_tensor(x) : to_tensor(reshard(x, P{}));
}

inline PartitionSpec without_sets(const PartitionSpec& spec) { return PartitionSpec(spec.entries()); }

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0;
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double worst = (x - y).abs().max().item<double>() / (1 + y.abs().max().item<double>());
  return worst == worst ? worst : std::numeric_limits<double>::infinity();
}

// Returns all shardings over the axes of the mesh. Each axis is unused, on a dimension that it divides (with
// Uneven::pad on any dimension), unreduced, or (with_reduced) reduced. Two axes on a dimension: in both orders.
inline std::vector<PartitionSpec> placements(Mesh mesh, const Shape& shape, bool with_reduced = false,
                                             Uneven others = Uneven::error) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  std::vector<PartitionSpec> found;
  std::set<std::string> seen;
  const int ndim = static_cast<int>(shape.size()), states = ndim + (with_reduced ? 3 : 2);
  int64_t total = 1;
  for (size_t i = 0; i < names.size(); ++i) total *= states;
  std::sort(names.begin(), names.end());
  do {
    for (int64_t code = 0; code < total; ++code) {
      std::vector<std::vector<std::string>> dims(ndim);
      std::vector<std::string> pending, reduced;
      int64_t rest = code;
      for (const std::string& name : names) {
        const int state = static_cast<int>(rest % states);
        rest /= states;
        if (state < ndim)
          dims[state].push_back(name);
        else if (state == ndim + 1)
          pending.push_back(name);
        else if (state == ndim + 2)
          reduced.push_back(name);
      }
      bool divides = true;
      std::vector<SpecEntry> entries;
      for (int d = 0; d < ndim; ++d) {
        int64_t n = 1;
        for (const std::string& name : dims[d]) n *= mesh.size(name);
        divides &= shape[d] % n == 0;
        entries.emplace_back(dims[d], shape[d] % n ? others : Uneven::error);
      }
      std::sort(pending.begin(), pending.end()), std::sort(reduced.begin(), reduced.end());
      const PartitionSpec spec = PartitionSpec(std::move(entries)).unreduced(pending).reduced(reduced);
      if ((divides || others == Uneven::pad) && seen.insert(spec.to_string()).second) found.push_back(spec);
    }
  } while (std::next_permutation(names.begin(), names.end()));
  return found;
}

inline bool pads(const PartitionSpec& spec) {
  return std::any_of(spec.entries().begin(), spec.entries().end(), [](const SpecEntry& e) { return e.pads(); });
}

inline std::set<std::string> axes_of(const PartitionSpec& spec, bool sets = true) {
  std::set<std::string> axes;
  for (const SpecEntry& entry : spec.entries()) axes.insert(entry.axes().begin(), entry.axes().end());
  if (sets) axes.insert(spec.unreduced_axes().begin(), spec.unreduced_axes().end());
  if (sets) axes.insert(spec.reduced_axes().begin(), spec.reduced_axes().end());
  return axes;
}

inline std::string ledger_text(const CommLedger& ledger) {
  std::string text;
  for (const CommRecord& r : ledger.records())
    text += fmt::format("{} {} over {} ({} devices), {} bytes, {} -> {}, {}\n", r.operation, r.kind, r.mesh_axes,
                        r.num_devices, r.bytes, r.operand, r.result, r.backward ? "backward" : "forward");
  return text;
}

// A function of arrays, and the same function in LibTorch. Integer inputs have no gradient. A result without a gradient
// (integers, booleans, or a function of integers) is only compared.
struct Function {
  std::string name;
  std::vector<at::Tensor> inputs;
  std::function<Array(const std::vector<Array>&)> ours;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> theirs;
  double tolerance = 1e-12;
  bool keeps_division = false;  // the work is split over at least as many devices as each operand
};

// The source of an input: the model itself, or a computation on data.
enum class Role { parameter, activation };

struct Outcome {
  at::Tensor value;
  std::vector<at::Tensor> gradients;  // undefined for integers
  std::string ledger;
};

inline at::Tensor cotangent(const at::Tensor& value) { return random_tensor(value.sizes().vec(), 99); }

inline Outcome reference(const Function& f) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& t : f.inputs) inputs.push_back(t.clone().requires_grad_(t.is_floating_point()));
  Outcome result;
  result.value = f.theirs(inputs);
  if (result.value.requires_grad()) (result.value * cotangent(result.value)).sum().backward();
  for (const at::Tensor& t : inputs)  // zeros for inputs that the result does not depend on
    result.gradients.push_back(t.grad().defined() || !t.is_floating_point() ? t.grad() : at::zeros_like(t));
  return result;
}

// Computes f on inputs with these shardings. Throws the exceptions of f, and std::logic_error if a law is violated that
// needs no reference. Without a cotangent there is no backward pass.
inline Outcome compute(const Function& f, const at::Tensor& cotangent, const std::vector<PartitionSpec>& specs,
                       Mesh mesh, Role first, Role others, const GradientOptions& options) {
  const Array one = from_tensor(at::ones({}, at::kDouble));
  std::vector<Array> parameters;
  std::set<std::string> used;
  const auto devices = [&](const std::set<std::string>& axes) {
    int64_t n = 1;
    for (const std::string& axis : axes) n *= mesh.size(axis);
    return n;
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool direct = (i ? others : first) == Role::parameter || !f.inputs[i].is_floating_point();
    parameters.push_back(placed(f.inputs[i], mesh, direct ? without_sets(specs[i]) : P{}));
    used.merge(axes_of(specs[i]));
  }
  CommLedger ledger;
  Tape tape(parameters, options);
  std::vector<Array> inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    Array x = tape.shadows()[i];
    if ((i ? others : first) == Role::activation && f.inputs[i].is_floating_point()) x = x * one;
    // A parameter that already has the sharding is passed as it is.
    inputs.push_back(x.sharding().spec() == specs[i] ? x : redistribute(x, NamedSharding(mesh, specs[i])));
  }
  const Array value = f.ours(inputs);
  std::vector<Array> gradients;
  if (cotangent.defined()) gradients = tape.gradients(sum(value * from_tensor(cotangent)));

  Outcome result{{}, {}, ledger_text(ledger)};
  const std::vector<CommRecord> records = ledger.records();
  result.value = whole(value);
  for (size_t i = 0; i < gradients.size(); ++i) {
    result.gradients.push_back(gradients[i].is_absent() ? at::Tensor() : whole(gradients[i]));
    if (!gradients[i].is_absent() && gradients[i].type_string() != parameters[i].type_string())
      throw std::logic_error(fmt::format("gradient {} is {}, the parameter {}", i, gradients[i].type_string(),
                                         parameters[i].type_string()));
  }
  for (const CommRecord& r : records) {
    for (std::string_view rest = r.mesh_axes; !rest.empty();) {
      const std::string axis(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(rest.size(), axis.size() + 1));
      if (!used.contains(axis)) throw std::logic_error("a collective over " + axis + ", which no input uses");
    }
    if (r.num_devices < 2 || r.bytes < 1) throw std::logic_error("an empty collective in the ledger");
    if (std::string_view(r.where.file_name()).find("/tests/") == std::string_view::npos)
      throw std::logic_error(fmt::format("the {} of {} is put down to {}:{}, no line of the caller", r.kind,
                                         r.operation, r.where.file_name(), r.where.line()));
  }
  if (f.keeps_division) {
    for (const PartitionSpec& spec : specs)
      if (!pads(spec) && devices(axes_of(value.sharding().spec())) < devices(axes_of(spec, false)))
        throw std::logic_error("work that was divided is done by more devices: " + value.type_string());
  }
  return result;
}

// Checks f for one choice of input shardings, with shared and with private replicas. The inputs are all parameters, all
// activations, or an activation and parameters. Adds the number of cases; returns false if some failed.
inline bool expect_law_on(const Function& f, const Outcome& expected, const std::vector<MeshAxis>& axes,
                          const std::vector<PartitionSpec>& specs, const GradientOptions& options, int& cases) {
  const Mesh meshes[] = {make_mesh(axes), make_mesh(axes, {.private_replicas = true})};
  const at::Tensor weights = expected.value.requires_grad() ? cotangent(expected.value) : at::Tensor();
  for (const auto& [first, others] : {std::pair(Role::parameter, Role::parameter),
                                      {Role::activation, Role::activation},
                                      {Role::activation, Role::parameter}}) {
    std::vector<std::string> names;
    for (const PartitionSpec& spec : specs) names.push_back(spec.to_string());
    const std::string what =
        fmt::format("{} of {} on ({}), {}", f.name, fmt::join(names, " and "), meshes[0].to_string(),
                    first == Role::parameter    ? "parameters"
                    : others == Role::parameter ? "activation and parameters"
                                                : "activations");
    std::string wrong, ledgers[2];
    for (int kind = 0; kind < 2; ++kind) {
      try {
        const Outcome got = compute(f, weights, specs, meshes[kind], first, others, options);
        ledgers[kind] = got.ledger;
        const char* replicas = kind ? "private" : "shared";
        if (const double e = difference(got.value, expected.value); e > f.tolerance)
          wrong += fmt::format("{}: value off by {}\n", replicas, e);
        for (size_t g = 0; g < got.gradients.size(); ++g)
          if (got.gradients[g].defined())
            if (const double e = difference(got.gradients[g], expected.gradients[g]); e > f.tolerance)
              wrong += fmt::format("{}: gradient {} off by {}\n", replicas, g, e);
      } catch (const std::exception& e) {
        wrong += std::string(e.what()).substr(0, 400) + "\n";
      }
      ++cases;
    }
    if (ledgers[0] != ledgers[1]) wrong += "the ledgers differ\nprivate:\n" + ledgers[1];
    if (wrong.empty()) continue;
    ADD_FAILURE() << what << "\n" << wrong << "ledger:\n" << ledgers[0];
    return false;
  }
  return true;
}

// Returns the shardings to check for each input of f. Integers are never unreduced.
inline std::vector<std::vector<PartitionSpec>> choices_of(const Function& f, Mesh mesh, bool with_reduced,
                                                          Uneven uneven_dims) {
  std::vector<std::vector<PartitionSpec>> choices;
  for (const at::Tensor& t : f.inputs) {
    choices.push_back(placements(mesh, t.sizes().vec(), with_reduced, uneven_dims));
    if (!t.is_floating_point())
      std::erase_if(choices.back(), [](const PartitionSpec& s) { return !s.unreduced_axes().empty(); });
  }
  return choices;
}

inline size_t count_of(const std::vector<std::vector<PartitionSpec>>& choices) {
  size_t total = 1;
  for (const auto& choice : choices) total *= choice.size();
  return total;
}

inline std::vector<PartitionSpec> numbered(const std::vector<std::vector<PartitionSpec>>& choices, size_t code) {
  std::vector<PartitionSpec> specs;
  for (const auto& choice : choices) specs.push_back(choice[code % choice.size()]), code /= choice.size();
  return specs;
}

// Checks f for every choice of input shardings if there are at most `few`, else for a fixed random `sample` of them.
// The default of `few` covers two matrices on two axes, which have 18 * 18 = 324 choices. Returns the number of cases.
inline int expect_law(const Function& f, const std::vector<MeshAxis>& axes, size_t sample, bool with_reduced = false,
                      const GradientOptions& options = {}, size_t few = 330, Uneven uneven_dims = Uneven::error) {
  if (const size_t said = placements_said()) sample = few = said;
  const auto choices = choices_of(f, make_mesh(axes), with_reduced, uneven_dims);
  const Outcome expected = reference(f);
  const size_t total = count_of(choices);
  const bool all = total <= std::max(few, sample);
  std::mt19937_64 random(7);
  int cases = 0, failures = 0;
  for (size_t i = 0; i < (all ? total : sample) && failures < 2; ++i)
    failures += !expect_law_on(f, expected, axes, numbered(choices, all ? i : random() % total), options, cases);
  return cases;
}

}  // namespace tessera::testing
