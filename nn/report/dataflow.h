// ModuleDataflow: the arrays that go into and come out of each module of a running program.
#pragma once

#include <c10/core/Storage.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sharding/accounting/operation_event.h"

namespace tessera::nn::detail {

using tessera::detail::ArrayImpl;

// Returns the path of a module; "" outside of any module.
std::string path_in(const tessera::detail::Text& module);
// Returns the module and all modules that contain it: "layers.2.mlp", "layers.2", "layers", "".
std::vector<std::string> modules_around(const std::string& module);
// Returns the module for the path of a communication record:
//   a single path               the path itself
//   "a.b.x, a.c.x"              the deepest module that contains all of these parameters
//   "a.b.x and 3 more"          "", because not all parameters are named
std::string common_module(const std::string& paths);

// Records arrays as they are made and read, in order. An array is identified by its address, or by its memory if
// another handle replaces it (remat, stop_gradient). Both are held weakly: no address is reused, and memory is freed as
// usual.
class ModuleDataflow {
 public:
  struct Value {
    const tessera::detail::Type* type;
    std::optional<std::string> maker;  // the path of the module; nullopt for an argument of the program
    std::weak_ptr<ArrayImpl> array;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> memory = {};
    Array kept = {};  // if `keeps` returns true
  };
  // Inputs and outputs of a module: indices of values, in the order of their first reading.
  struct Ends {
    std::vector<size_t> inputs, outputs;
    std::optional<size_t> last;  // last value made in the module
  };

  // Makes an empty record. `keeps` returns true for modules whose results stay in memory, in Value::kept.
  explicit ModuleDataflow(std::function<bool(const std::string& module)> keeps = nullptr);

  void begin(const Array& argument);
  // Events of an Observer: an operation has run, and the program has placed an array.
  void computed(const tessera::detail::OperationCall& call, const tessera::detail::OperationArrays& arrays);
  void moved(const ArrayImpl& from, const Array& to);
  // Records that the program returns x.
  void returned(const Array& x);

  // Returns the index of a value; nullopt if it was not recorded.
  std::optional<size_t> find(const ArrayImpl& x) const;
  const Value& value(size_t number) const { return values_[number]; }
  // Returns the inputs and outputs of every module so far, outer modules included. If no output of a module was read,
  // its last value is its output.
  std::map<std::string, Ends> ends() const;

 private:
  void read(const std::string& module, const ArrayImpl& x);
  void add(std::optional<std::string> maker, const Array& x);

  std::function<bool(const std::string&)> keeps_;
  std::vector<Value> values_;
  std::unordered_map<const ArrayImpl*, size_t> by_array_;
  std::map<std::pair<const c10::StorageImpl*, const tessera::detail::Type*>, size_t> by_memory_;
  std::map<std::string, Ends> ends_;
};

}  // namespace tessera::nn::detail
