// Kind propagation: one operation on placed operands, its result's value, gradient and placement, and its traffic.
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

// One case, as the function of an operation reads it.
class Call {
 public:
  Call(const std::vector<Array>& inputs, const Json& attributes, Mesh mesh)
      : inputs_(inputs), attributes_(attributes), mesh_(mesh) {}

  const Array& operator[](size_t i) const { return inputs_.at(i); }
  const std::vector<Array>& inputs() const { return inputs_; }

  bool has(const char* name) const;  // and it is not null
  const Json& json(const char* name) const { return attributes_.at(name); }
  int64_t integer(const char* name) const;
  int dim(const char* name) const { return static_cast<int>(integer(name)); }
  double number(const char* name) const;
  bool flag(const char* name) const;  // false where it is missing
  std::string text(const char* name) const;
  std::vector<int64_t> integers(const char* name) const;
  // One for each dim: of a list of pairs, one pair, or one number.
  std::vector<std::pair<int64_t, int64_t>> pairs(const char* name, int ndim) const;
  Dims dims(const char* name) const;  // of one number, a list, or null: none
  std::optional<int> optional_dim(const char* name) const;
  std::optional<int64_t> optional_integer(const char* name) const;
  // A number as the operand that it was in Python: whole numbers are integers.
  ArrayOrNumber term(const char* name, std::source_location where = std::source_location::current()) const;

  // The placement that was asked for.
  std::optional<PartitionSpec> out() const;
  NamedSharding sharding() const;  // the same on the case's mesh; replicated if none was

 private:
  const std::vector<Array>& inputs_;
  const Json& attributes_;
  Mesh mesh_;
};

// One array, or several.
struct Results : std::vector<Array> {
  Results(Array x) : vector{std::move(x)} {}
  Results(std::vector<Array> xs) : vector(std::move(xs)) {}
};

using Body = Results (*)(const Call&);
const std::map<std::string, Body>& propagation_operations();

// What a case says of one program: kinds of collectives and their bytes.
int64_t bytes_of(const Json& collectives);

// Why a case may move more bytes than XLA's program of it does, or its result lie elsewhere than in JAX's explicit
// mode, as docs/sharding.md lists the reasons; null if it may not.
struct Moved {
  int64_t by_operation = 0;  // bytes, without those that finish a pending sum
  bool sums_alone = false;   // all that the operation moved were pending sums of its parts
  int64_t all = 0;
};
const char* documented_difference(const Json& file, const Json& c, const Moved& moved);
const char* documented_placement(const Json& c, const PartitionSpec& got, size_t output);

}  // namespace tessera::runner
