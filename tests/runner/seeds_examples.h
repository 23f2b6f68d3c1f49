// Kind seeds_examples: documented programs of JAX's sharding, written again in C++ under their ids, and what they show.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sharding/accounting/ledger.h"
#include "sharding/files/safetensors.h"
#include "tests/runner/array_record.h"

namespace tessera::runner {

// One example of the file. Its body says what it shows; every word is compared with the file's, and what the file has
// and the body does not show is missing.
class Example {
 public:
  Example(const Json& expected, const SafetensorsFile* tensors) : expected_(expected), tensors_(tensors) {}

  const Json& expected() const { return expected_; }
  // An input of the example that the file stores.
  Array tensor(const std::string& name) const;

  void array(const std::string& name, const Array& x);  // placement, and values where the file has them
  void value(const std::string& name, const Json& got);
  void value(const std::string& name, const Array& x) { value(name, values_of(x)); }
  void checksum(const std::string& name, const Array& x);
  // A number as the document prints it.
  void documented(const std::string& name, const Json& got);
  void visualize(const std::string& name, const Array& x);
  // No more bytes than XLA's program moves.
  void collectives(const std::string& name, const CommLedger& ledger);
  // The call is refused, with the file's kind of error.
  void error(const std::string& name, const std::function<void()>& call);
  void optimizer_state(const std::string& name, const Array& x);
  // What the library does otherwise on purpose, and why.
  void differs(const std::string& section, const std::string& name, const std::string& why);

  // Everything that is wrong, in words; empty if nothing.
  std::string failures() const;

 private:
  const Json* find(const std::string& section, const std::string& name);
  void compare(const std::string& section, const std::string& name, const Json& got);
  void complain(const std::string& section, const std::string& name, const std::string& words);

  const Json& expected_;
  const SafetensorsFile* tensors_;
  std::set<std::string> shown_;
  std::string failures_;
};

using Program = void (*)(Example&);
using Programs = std::map<std::string, Program>;

// By the document they come from.
Programs equinox_programs();       // eqx.*
Programs spmd_programs();          // spmd.*
Programs introduction_programs();  // intro.*
Programs scaling_programs();       // scaling.*

// value[i] = (((i k + c) mod m) - s) / d, the files' inputs.
struct Formula {
  int64_t k = 37, c = 11, m = 101, s = 50;
  double d = 64;
};
Array det(const Shape& shape, const Formula& formula = {}, DType dtype = float32);

// The mesh of most programs, four by two.
Mesh data_model();

// x without pending sums, which are finished where the document looks at its result.
Array finished(const Array& x);

}  // namespace tessera::runner
