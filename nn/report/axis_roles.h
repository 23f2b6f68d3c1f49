// AxisRoles: what each name of a program's dims is for, as far as placement goes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/placement/table.h"
#include "sharding/placement/resolver.h"

namespace tessera::nn::detail {

struct AxisRoles {
  std::vector<std::string> names;           // all, in the order in which the program asked for them
  std::map<std::string, int64_t> divisors;  // by name: the greatest common divisor of its sizes
  std::string batch;                        // the rows of a batch; empty: no name is that
  std::string stream;                       // in most of the parameters' elements: the embed of a transformer
  std::vector<std::string> inner;           // beside it in matrices: heads, mlp, vocab
  std::vector<std::string> sequence;        // beside the batch in activations, and in next to no parameter
  std::vector<std::string> constrained;     // of these, those of with_sharding_constraint
  bool stream_is_everywhere = false;        // in all of the parameters' elements but a few
  std::string blocks;                       // the field of the vector that has most bytes: layers; empty: none has two
  int64_t depth = 0;                        // its elements; of several such vectors their greatest common divisor

  // Whether n divides every dim of that name.
  bool divides(int64_t n, const std::string& name) const { return divisors.at(name) % n == 0; }
};

// `rows`: of all that the program holds.
AxisRoles roles_of(const std::vector<tessera::detail::NamedDims>& asked, const std::vector<PlacementRow>& rows = {});

}  // namespace tessera::nn::detail
