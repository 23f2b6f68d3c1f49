// Placing arrays: device_put, with_sharding_constraint and reshard.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>

#include "sharding/array/array.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera {

// x placed as `sharding` says; differentiable. A recipe is carried out block by block: no device ever holds more than
// its own. An array that is placed already moves, also to a mesh over other devices of this process.
// Errors: as NamedSharding's; a dim left open (unconstrained), a spec longer than x has dims (rank_mismatch), a dim
// that does not divide (not_divisible).
Array device_put(const Array& x, const NamedSharding& sharding,
                 std::source_location where = std::source_location::current());

// x on one device alone, by its id: device_put(x, SingleDeviceSharding{device}).
Array device_put(const Array& x, int device, std::source_location where = std::source_location::current());

// The same by names: the mesh rules' rules for activations turn `axes` into a spec. The result carries the mesh rules.
Array device_put(const Array& x, const Axes& axes, const MeshRules& mesh_rules,
                 std::source_location where = std::source_location::current());

// x as a parameter of a model, as filter_shard makes it: a weight (it is moved where it disagrees with an activation),
// with its path for ledgers and errors, and mesh rules that what is computed from it carries as well.
Array place_parameter(const Array& x, const NamedSharding& sharding, const std::string& path);
Array place_parameter(const Array& x, const MeshRules& mesh_rules, const PartitionSpec& spec, const std::string& path);
// x in the place of another parameter: with its placement, its path and its mesh rules. x itself where the other has no
// placement.
Array place_parameter_as(const Array& x, const Array& old);

// x as a part of a batch: placed, and carrying the mesh rules.
Array place_batch(const Array& x, const MeshRules& mesh_rules, const PartitionSpec& spec);

// x placed as the sharding says, moved if it is not there yet; differentiable. Used in the middle of a computation to
// pin the placement of an intermediate value. The mesh may be another one over the same devices in any order; over
// other devices it is an Error (device_mismatch). A dim that the spec leaves open (unconstrained) keeps its mesh axes,
// if the mesh is x's own and the spec does not use them elsewhere.
Array with_sharding_constraint(const Array& x, const NamedSharding& sharding,
                               std::source_location where = std::source_location::current());

// By a spec on x's own mesh: with_sharding_constraint(x, P{"data", none}).
Array constrain_to_spec(const Array& x, const PartitionSpec& spec, std::source_location where);
template <std::same_as<PartitionSpec> Spec>
Array with_sharding_constraint(const Array& x, const Spec& spec,
                               std::source_location where = std::source_location::current()) {
  return constrain_to_spec(x, spec, where);
}

// x moved to another placement on its own mesh, and nowhere else (jax.sharding.reshard): another mesh is an Error
// (device_mismatch), and so is a dim left open (unconstrained).
Array reshard(const Array& x, const NamedSharding& sharding,
              std::source_location where = std::source_location::current());
Array reshard_to_spec(const Array& x, const PartitionSpec& spec, std::source_location where);
template <std::same_as<PartitionSpec> Spec>
Array reshard(const Array& x, const Spec& spec, std::source_location where = std::source_location::current()) {
  return reshard_to_spec(x, spec, where);
}

// The whole value on every device, so that every process can read it (to_host, item, print): reshard to P{}, which all
// processes call; of an array on a sub-mesh, on the whole mesh. An array that is not placed comes back as it is.
Array gather(const Array& x, std::source_location where = std::source_location::current());

// x with its pending sums (unreduced axes) finished where it lies: every dim keeps its mesh axes. Nothing pends in most
// arrays, which come back as they are: operations finish what they cannot carry on.
Array reduce_partial_sum(const Array& x, std::source_location where = std::source_location::current());

// By names, with the rules of the mesh rules that x carries: with_sharding_constraint(x, {"batch", "seq", "embed"}). If
// x carries none, since nothing that it was computed from was placed by mesh rules, x comes back as it is.
Array with_sharding_constraint(const Array& x, const Axes& axes,
                               std::source_location where = std::source_location::current());

// The mesh rules that an array carries: the one that placed it or an array that it was computed from; empty without.
std::optional<MeshRules> mesh_rules_of(const Array& x);

}  // namespace tessera
