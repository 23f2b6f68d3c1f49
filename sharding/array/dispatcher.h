// Registrations with LibTorch's dispatcher, made on the first use of the feature that needs them.
#pragma once

#include <c10/core/DispatchKey.h>

namespace torch {
class CppFunction;
class Library;
}  // namespace torch

namespace tessera::detail {

// Returns a new library of kernels for `key`. It remains registered until the process ends, because another thread may
// be inside one of its kernels at any time.
torch::Library& permanent_library(const char* name_space, c10::DispatchKey key);

// Registers `kernel` for all operators that have no other kernel for `key`. Call it from the thread that calls
// operations, while the thread pool is idle: LibTorch changes its tables without locks. Throws an Error (other) if
// another library has registered a fallback for `key`; the message begins with `feature`.
void add_fallback(const char* feature, c10::DispatchKey key, torch::CppFunction&& kernel);

}  // namespace tessera::detail
