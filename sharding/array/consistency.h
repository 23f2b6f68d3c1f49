// What TESSERA_CHECK=1 checks of one array: its tensors are as its type says, and its replicas are equal.
#pragma once

#include <cstdint>
#include <string>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Called whenever an array is an operand or is read. Checks that there are as many tensors as the type says, of its
// block's shape and element type, and that replicas are equal bit by bit: those stored apart are read for it, others
// share their memory. Error (inconsistent), which begins with `verb`.
void check_array(const ArrayImpl& a, const char* verb);

// A hash of all bits of `t`.
uint64_t checksum(const at::Tensor& t);

// Throws Error (inconsistent), which begins with `verb`, and says what is broken and what to look for.
[[noreturn]] void fail_broken(const char* verb, const std::string& what);

}  // namespace tessera::detail
