// shard_map: runs a function that is written for one device on each device's blocks, with explicit collectives.
#pragma once

#include <concepts>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sharding/array/array.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/partition_spec.h"
#include "sharding/shard_map/collectives.h"

namespace tessera {

// One spec per argument or result, {P{"x"}, P{}}, or one for all of them: P{"x"}.
class Specs {
 public:
  Specs(PartitionSpec all) : specs_{std::move(all)}, for_all_(true) {}
  Specs(std::initializer_list<PartitionSpec> each) : specs_(each) {}
  Specs(std::vector<PartitionSpec> each) : specs_(std::move(each)) {}

  // Returns the spec of argument or result i of n; null if there are not n specs.
  const PartitionSpec* of(size_t i, size_t n) const {
    return for_all_ ? &specs_[0] : specs_.size() == n ? &specs_[i] : nullptr;
  }
  size_t size() const { return specs_.size(); }

 private:
  std::vector<PartitionSpec> specs_;
  bool for_all_ = false;
};

struct ShardMapOptions {
  std::vector<std::string> axis_names = {};  // the manual axes; empty: all that are not yet manual
  // If false, a result that varies along a mesh axis may be returned as replicated: the first device's value is used.
  bool check_vma = true;
};

namespace detail {

struct ManualAxes;
template <class T>
class ScopedValue;

// One call of shard_map: converts the arguments before the function runs, and its results afterwards.
class ShardMapCall {
 public:
  ShardMapCall(Mesh mesh, Specs in_specs, Specs out_specs, ShardMapOptions options, std::source_location where);

  // Marks this thread as inside the shard_map while the object exists.
  class Inside {
   public:
    explicit Inside(const ShardMapCall& call);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    uint32_t axes() const { return axes_; }  // the mesh axes that this call made manual, as an AxisSet

   private:
    uint32_t axes_;
    std::unique_ptr<ScopedValue<ManualAxes>> scope_;
  };

  // Converts the arguments to the blocks that the function receives.
  std::vector<Array> enter(const std::vector<Array>& arguments) const;
  // Converts the results, in place, to the arrays that the caller receives.
  void leave(const std::vector<Array*>& results, const Inside& inside) const;

 private:
  Array enter_one(const Array& x, const PartitionSpec& spec, size_t i) const;
  Array leave_one(const Array& x, const PartitionSpec& spec, size_t i, uint32_t axes) const;
  uint32_t manual() const;

  Mesh mesh_;
  Specs in_, out_;
  ShardMapOptions options_;
  std::source_location where_;
};

// Collects the Arrays of a result: an Array, or a tuple, pair, array or vector of results.
template <class Result>
void collect_arrays(Result& result, std::vector<Array*>& arrays) {
  if constexpr (std::is_same_v<Result, Array>)
    arrays.push_back(&result);
  else if constexpr (requires { result.begin(); })
    for (auto& element : result) collect_arrays(element, arrays);
  else if constexpr (requires { std::tuple_size<Result>::value; })
    std::apply([&](auto&... elements) { (collect_arrays(elements, arrays), ...); }, result);
  else
    static_assert(!sizeof(Result),
                  "tessera: a function of shard_map must return an Array, or a tuple, array or vector of Arrays.");
}

}  // namespace detail

// The result of shard_map: takes arrays, and returns the results of the function.
template <class F>
class ShardMapped {
 public:
  ShardMapped(F f, detail::ShardMapCall call) : f_(std::move(f)), call_(std::move(call)) {}

  // For functions of one vector: takes any number of arguments.
  template <std::same_as<std::vector<Array>> Arguments>
  auto operator()(const Arguments& arguments) const {
    return run(arguments, f_);
  }

  template <class... Args>
  requires(std::convertible_to<const Args&, const Array&>&&...) auto operator()(const Args&... arguments) const {
    return run({static_cast<const Array&>(arguments)...},
               [&](const std::vector<Array>& inside) { return apply(inside, std::index_sequence_for<Args...>()); });
  }

 private:
  template <class G>
  auto run(const std::vector<Array>& arguments, const G& g) const {
    const std::vector<Array> blocks = call_.enter(arguments);
    const detail::ShardMapCall::Inside inside(call_);
    auto result = g(blocks);
    std::vector<Array*> results;
    detail::collect_arrays(result, results);
    call_.leave(results, inside);
    return result;
  }

  template <size_t... I>
  auto apply(const std::vector<Array>& blocks, std::index_sequence<I...>) const {
    if constexpr (std::is_invocable_v<const F&, decltype(blocks[I])...>)
      return f_(blocks[I]...);
    else
      return f_(blocks);
  }

  F f_;
  detail::ShardMapCall call_;
};

// Returns a function of arrays that runs `f` on each device's blocks, as jax.shard_map. `f` is called once, with arrays
// (or one vector of them) that have the shape of one device's block of each argument. They vary along the mesh axes of
// their in_spec and are invariant along the others. All computations of `f` run on every device, and only the
// collectives of collectives.h communicate. The out_specs determine how the results of `f` are assembled.
//   const auto mean = shard_map([](const Array& x) { return pmean(x, "data"); }, mesh, P{"data"}, P{});
//   mean(x)
// `f` may capture a replicated array, but not one that is sharded over a manual axis (varying_axis): pass that through
// in_specs. Over mesh axes that are not in axis_names, arrays keep their sharding, and operations propagate it as
// usual; a nested shard_map may make these axes manual. An out_spec may leave a mesh axis unreduced: the devices'
// results are then the terms of a partial sum.
// Gradients flow through, and may be computed inside: there, the gradient of an invariant array is the sum over the
// devices.
// Errors, for an argument or result
//   not_divisible: a dimension that its axes do not divide
//   rank_mismatch: a spec that is longer than the array has dimensions
//   unknown_axis: an axis that is not in the mesh or not in axis_names
//   duplicate_axis: an axis twice
//   varying_axis: an out_spec without an axis along which the result varies
//   invalid_argument: a different number of specs than arrays
template <class F>
ShardMapped<F> shard_map(F f, Mesh mesh, Specs in_specs, Specs out_specs, ShardMapOptions options = {},
                         std::source_location where = std::source_location::current()) {
  return {std::move(f), {mesh, std::move(in_specs), std::move(out_specs), std::move(options), where}};
}

}  // namespace tessera
