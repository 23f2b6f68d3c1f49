// What TESSERA_CHECK=1 says of one array: its tensors are those that its type says, and its replicas are equal.
#pragma once

#include <cstdint>
#include <string>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Every time an array is an operand or is read. The devices hold as many tensors as the type says, of its block's shape
// and element type, and those that the type calls equal are equal bit by bit: replicas that are stored apart are read
// once more, others share their memory. Error (inconsistent), which begins with `verb`.
void check_array(const ArrayImpl& a, const char* verb);

// Of all its bits.
uint64_t checksum(const at::Tensor& t);

// Error (inconsistent), which begins with `verb`, says what is broken, and what to look for.
[[noreturn]] void fail_broken(const char* verb, const std::string& what);

}  // namespace tessera::detail
