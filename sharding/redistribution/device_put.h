// Places arrays: device_put, with_sharding_constraint, reshard, gather, and placement of parameters and batches.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>

#include "sharding/array/array.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera {

// Returns x placed by `sharding`; differentiable. A lazy initializer is evaluated block by block, so no device ever
// stores more than its block. An array that is placed already is resharded, also to a mesh over other devices of this
// process.
//
// Errors
//   those of NamedSharding
//   unconstrained: a spec with an unconstrained dimension
//   rank_mismatch: a spec with more entries than x has dimensions
//   not_divisible: a dimension that its mesh axes do not divide
Array device_put(const Array& x, const NamedSharding& sharding,
                 std::source_location where = std::source_location::current());

// Returns x on one device only, by its id: device_put(x, SingleDeviceSharding{device}).
Array device_put(const Array& x, int device, std::source_location where = std::source_location::current());

// Returns x placed by names: the activation rules of the mesh rules turn `axes` into a spec. The result carries the
// mesh rules.
Array device_put(const Array& x, const Axes& axes, const MeshRules& mesh_rules,
                 std::source_location where = std::source_location::current());

// Returns x as a parameter of a model, as filter_shard makes it. If its sharding conflicts with an activation's, the
// parameter is resharded. Ledgers and errors show its path. Arrays computed from it inherit its mesh rules.
Array place_parameter(const Array& x, const NamedSharding& sharding, const std::string& path);
Array place_parameter(const Array& x, const MeshRules& mesh_rules, const PartitionSpec& spec, const std::string& path);
// Returns x as the replacement of the parameter `old`: with the sharding, path and mesh rules of `old`. Returns x
// itself if `old` is not placed.
Array place_parameter_as(const Array& x, const Array& old);

// Returns x as an array of a batch: placed by `spec`, with these mesh rules.
Array place_batch(const Array& x, const MeshRules& mesh_rules, const PartitionSpec& spec);

// Returns x with this sharding, resharded if necessary; differentiable. Use it in the middle of a computation to fix
// the sharding of an intermediate value. The mesh may have the same devices in another order; over other devices it is
// an Error (device_mismatch). An unconstrained dimension of the spec keeps its mesh axes, if the mesh is x's own and
// the spec does not use them elsewhere.
Array with_sharding_constraint(const Array& x, const NamedSharding& sharding,
                               std::source_location where = std::source_location::current());

// Constrains x by a spec on its own mesh: with_sharding_constraint(x, P{"data", none}).
Array constrain_to_spec(const Array& x, const PartitionSpec& spec, std::source_location where);
template <std::same_as<PartitionSpec> Spec>
Array with_sharding_constraint(const Array& x, const Spec& spec,
                               std::source_location where = std::source_location::current()) {
  return constrain_to_spec(x, spec, where);
}

// Returns x resharded on its own mesh (jax.sharding.reshard).
// Errors
//   device_mismatch: another mesh
//   unconstrained: a spec with an unconstrained dimension
Array reshard(const Array& x, const NamedSharding& sharding,
              std::source_location where = std::source_location::current());
Array reshard_to_spec(const Array& x, const PartitionSpec& spec, std::source_location where);
template <std::same_as<PartitionSpec> Spec>
Array reshard(const Array& x, const Spec& spec, std::source_location where = std::source_location::current()) {
  return reshard_to_spec(x, spec, where);
}

// Returns the array replicated on every device, so that every process can read it (to_host, item, print). Same as
// reshard(x, P{}). All processes must call it. An array on a sub-mesh is gathered on the whole mesh. An array that is
// not placed is returned unchanged.
Array gather(const Array& x, std::source_location where = std::source_location::current());

// Reduces x's partial sums (unreduced axes) and keeps the mesh axes of every dimension. Returns x unchanged if it has
// none. It is rarely needed: operations reduce what they cannot propagate.
Array reduce_partial_sum(const Array& x, std::source_location where = std::source_location::current());

// Constrains x by names, with the mesh rules that x carries: with_sharding_constraint(x, {"batch", "seq", "embed"}).
// Returns x unchanged if it carries none, because no array from which it was computed was placed by mesh rules.
Array with_sharding_constraint(const Array& x, const Axes& axes,
                               std::source_location where = std::source_location::current());

// Returns the mesh rules that an array carries, from its own placement or from an array from which it was computed;
// else nullopt.
std::optional<MeshRules> mesh_rules_of(const Array& x);

}  // namespace tessera
