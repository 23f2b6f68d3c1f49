// Checks of TESSERA_CHECK=1 on one array: its tensors fit its type, and its replicas are equal.
#pragma once

#include <cstdint>
#include <string>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Checks an array that is an operand or is read. Throws an Error (inconsistent) unless the number of tensors, their
// shape and their element type fit the type, and replicas are equal bit by bit. Replicas with separate memory are read
// for this; others share their memory. The message begins with `verb`.
void check_array(const ArrayImpl& a, const char* verb);

// Returns a hash of all bits of `t`.
uint64_t checksum(const at::Tensor& t);

// Throws an Error (inconsistent), whose message begins with `verb` and adds likely causes to `what`.
[[noreturn]] void fail_broken(const char* verb, const std::string& what);

}  // namespace tessera::detail
