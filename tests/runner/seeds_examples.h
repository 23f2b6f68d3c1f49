// Reference files of kind "seeds_examples": JAX's documented sharding programs in C++, and their expected output.
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

// One example of the file. Its function passes each result to a method, which compares it with the file's. A result of
// the file without a counterpart is reported as missing.
class Example {
 public:
  Example(const Json& expected, const SafetensorsFile* tensors) : expected_(expected), tensors_(tensors) {}

  const Json& expected() const { return expected_; }
  // Returns an input of the example that the file stores.
  Array tensor(const std::string& name) const;

  void array(const std::string& name, const Array& x);  // sharding, and values if the file has them
  void value(const std::string& name, const Json& got);
  void value(const std::string& name, const Array& x) { value(name, values_of(x)); }
  void checksum(const std::string& name, const Array& x);
  // Checks a number against the one that the document prints.
  void documented(const std::string& name, const Json& got);
  void visualize(const std::string& name, const Array& x);
  // Checks that at most the bytes of XLA's program were communicated.
  void collectives(const std::string& name, const CommLedger& ledger);
  // Checks that `call` throws the file's kind of error.
  void error(const std::string& name, const std::function<void()>& call);
  void optimizer_state(const std::string& name, const Array& x);
  // Records a deliberate difference of the library, and its reason.
  void differs(const std::string& section, const std::string& name, const std::string& why);

  // Returns all deviations; empty if there are none.
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

// The examples of each document; their ids have the prefix of the document.
Programs equinox_programs();       // eqx.*
Programs spmd_programs();          // spmd.*
Programs introduction_programs();  // intro.*
Programs scaling_programs();       // scaling.*

// Inputs of the files: value[i] = (((i k + c) mod m) - s) / d.
struct Formula {
  int64_t k = 37, c = 11, m = 101, s = 50;
  double d = 64;
};
Array det(const Shape& shape, const Formula& formula = {}, DType dtype = float32);

// The mesh of most programs, data=4 and model=2.
Mesh data_model();

// Returns x with partial sums reduced, for results that the document reads.
Array finished(const Array& x);

}  // namespace tessera::runner
