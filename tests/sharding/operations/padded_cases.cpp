// Replaces the sizes of cases, and samples shardings that pad them.
#include "tests/sharding/operations/padded_cases.h"

#include <bit>
#include <map>

#include "sharding/runtime/processes.h"

namespace tessera::testing {

namespace {

using ChangedSizes = std::map<int64_t, int64_t>;  // by the original size

constexpr int64_t sizes[] = {5, 7, 13};
constexpr int few_draws = 64, max_elements = 5000;

// Repeats elements along dimensions that became longer. Integers may be indices, so they are reduced below the smallest
// new size.
at::Tensor resized(const at::Tensor& t, const ChangedSizes& to) {
  at::Tensor result = t;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (const auto found = to.find(t.size(d)); found != to.end())
      result = result.index_select(d, at::arange(found->second).remainder(t.size(d)));
  const bool is_index = !t.is_floating_point() && t.scalar_type() != at::kBool;
  return is_index && !to.empty() ? at::fmod(result, sizes[0]) : result;
}

bool runs(const Function& f) {
  for (const at::Tensor& t : f.inputs)
    if (t.numel() > max_elements) return false;
  try {
    on_one_device(f);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Returns f with each size above 1 replaced, from sizes[first] on. If f's expressions contain sizes as constants,
// replaces as many sizes as possible. Returns nullopt if no size can be replaced.
std::optional<Function> resized(const Function& f, size_t first) {
  std::set<int64_t> own;
  for (const at::Tensor& t : f.inputs)
    for (const int64_t size : t.sizes())
      if (size > 1) own.insert(size);
  for (int kept = 0; kept < static_cast<int>(own.size()); ++kept)
    for (unsigned without = 0; without < 1u << own.size(); ++without) {
      if (std::popcount(without) != kept) continue;
      ChangedSizes to;
      size_t i = 0;
      for (const int64_t size : own) {
        if (!(without >> i & 1)) to[size] = sizes[(first + i) % std::size(sizes)];
        ++i;
      }
      Function other = f;
      for (at::Tensor& t : other.inputs) t = resized(t, to);
      if (runs(other)) return other;
    }
  return std::nullopt;
}

std::vector<Function> resized(const Function& f) {
  std::vector<Function> all;
  for (size_t first = 0; first < std::size(sizes); ++first)
    if (auto other = resized(f, first)) all.push_back(std::move(*other));
  if (all.empty()) all.push_back(f);
  return all;
}

class Sampling {
 public:
  Sampling(const std::vector<MeshAxis>& axes, std::vector<PaddedCase>& found) : axes_(axes), found_(found) {}

  // Adds each drawn choice of shardings that pads a new size. If there is none, adds one choice that pads.
  void add(const Function& f) {
    const auto choices = choices_of(f, make_mesh(axes_, {.abstract = true}), false, Uneven::pad);
    const size_t total = count_of(choices), before = found_.size();
    std::vector<PartitionSpec> other;
    for (int draw = 0; draw < few_draws; ++draw) {
      std::vector<PartitionSpec> specs = numbered(choices, random_() % total);
      if (std::none_of(specs.begin(), specs.end(), pads)) continue;
      const size_t met = met_.size();
      met_.merge(padded_sizes(f, specs));
      if (met_.size() > met)
        found_.push_back({f, axes_, std::move(specs)});
      else if (other.empty())
        other = std::move(specs);
    }
    if (found_.size() == before && !other.empty()) found_.push_back({f, axes_, std::move(other)});
  }

 private:
  std::vector<MeshAxis> axes_;
  std::vector<PaddedCase>& found_;
  std::set<int64_t> met_;
  std::mt19937_64 random_{7};
};

}  // namespace

std::set<int64_t> padded_sizes(const Function& f, const std::vector<PartitionSpec>& specs) {
  std::set<int64_t> padded;
  for (size_t i = 0; i < specs.size(); ++i)
    for (size_t d = 0; d < specs[i].entries().size(); ++d)
      if (const int64_t size = f.inputs[i].size(static_cast<int64_t>(d)); specs[i].entries()[d].pads())
        if (std::find(std::begin(sizes), std::end(sizes), size) != std::end(sizes)) padded.insert(size);
  return padded;
}

Outcome on_one_device(const Function& f) {
  const bool is_recorded =
      std::any_of(f.inputs.begin(), f.inputs.end(), [](const at::Tensor& t) { return t.is_floating_point(); });
  const Mesh mesh = make_mesh({{"x", process_count()}});
  const std::vector<PartitionSpec> specs(f.inputs.size());
  const auto outcome = [&](const at::Tensor& weights) {
    return compute(f, weights, specs, mesh, Role::parameter, Role::parameter, {});
  };
  const at::Tensor value = outcome({}).value;
  if (!is_recorded || !value.is_floating_point()) return {value, {}, {}};
  Outcome result = outcome(cotangent(value));
  result.value.requires_grad_(true);
  return result;
}

std::vector<PaddedCase> padded_cases(const Case& one) {
  Function f = one.function;
  f.keeps_division = false;  // holds only for axes that divide the dimensions
  const std::vector<Function> functions = resized(f);
  std::vector<PaddedCase> found;
  for (const std::vector<MeshAxis>& axes :
       std::vector<std::vector<MeshAxis>>{{{"x", 2}}, {{"x", 3}}, {{"x", 4}}, {{"x", 8}}, {{"x", 2}, {"y", 3}}}) {
    Sampling sampling(axes, found);
    for (const Function& function : functions) sampling.add(function);
  }
  return found;
}

}  // namespace tessera::testing
