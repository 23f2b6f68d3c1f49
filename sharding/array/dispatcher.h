// Registrations with LibTorch's dispatcher, made on the first use of the feature that needs them.
#pragma once

#include <c10/core/DispatchKey.h>

namespace torch {
class CppFunction;
class Library;
}  // namespace torch

namespace tessera::detail {

// Returns a new library of kernels for `key`, which remains registered until the process ends: another thread may be
// inside of one of its kernels at any time.
torch::Library& permanent_library(const char* name_space, c10::DispatchKey key);

// Registers `kernel` for all operators that have no other kernel for `key`. Call it from the recording thread while the
// thread pool is idle: LibTorch changes its tables without locks. Error (other): another library has registered a
// fallback for `key`; `feature` is the verb of the message.
void add_fallback(const char* feature, c10::DispatchKey key, torch::CppFunction&& kernel);

}  // namespace tessera::detail
