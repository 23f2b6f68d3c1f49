// Reference files of kind "propagation": an operation on sharded operands: value, gradient, sharding and communication.
#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera::runner {

using Json = boost::json::value;

// The operands and attributes of one case.
class Call {
 public:
  Call(const std::vector<Array>& inputs, const Json& attributes, Mesh mesh)
      : inputs_(inputs), attributes_(attributes), mesh_(mesh) {}

  const Array& operator[](size_t i) const { return inputs_.at(i); }
  const std::vector<Array>& inputs() const { return inputs_; }

  bool has(const char* name) const;  // false if it is null
  const Json& json(const char* name) const { return attributes_.at(name); }
  int64_t integer(const char* name) const;
  int dim(const char* name) const { return static_cast<int>(integer(name)); }
  double number(const char* name) const;
  bool flag(const char* name) const;  // false if absent
  std::string text(const char* name) const;
  std::vector<int64_t> integers(const char* name) const;
  // One pair per dimension, from a list of pairs, a pair, or a number.
  std::vector<std::pair<int64_t, int64_t>> pairs(const char* name, int ndim) const;
  Dims dims(const char* name) const;  // from a number, a list, or null (empty)
  std::optional<int> optional_dim(const char* name) const;
  std::optional<int64_t> optional_integer(const char* name) const;
  // A Python number as an operand: whole numbers are integers.
  ArrayOrNumber term(const char* name, std::source_location where = std::source_location::current()) const;

  // The requested sharding.
  std::optional<PartitionSpec> out() const;
  NamedSharding sharding() const;  // out() on the case's mesh; replicated if absent

 private:
  const std::vector<Array>& inputs_;
  const Json& attributes_;
  Mesh mesh_;
};

// One array or several.
struct Results : std::vector<Array> {
  Results(Array x) : vector{std::move(x)} {}
  Results(std::vector<Array> xs) : vector(std::move(xs)) {}
};

using Body = Results (*)(const Call&);
const std::map<std::string, Body>& propagation_operations();

// Returns the total bytes of a case's collectives.
int64_t bytes_of(const Json& collectives);

// documented_difference: the reason, from docs/jax_differences.md, why a case may communicate more bytes than XLA's
// program. documented_placement: the reason why its sharding may differ from JAX's explicit mode. Both return null if
// the case must not differ.
struct Moved {
  int64_t by_operation = 0;  // bytes, without the reduction of partial sums
  bool sums_alone = false;   // only partial sums were communicated
  int64_t all = 0;
};
const char* documented_difference(const Json& file, const Json& c, const Moved& moved);
const char* documented_placement(const Json& c, const PartitionSpec& got, size_t output);

}  // namespace tessera::runner
