// Registrations with LibTorch's dispatcher.
#include "sharding/array/dispatcher.h"

#include <torch/library.h>

#include <utility>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::detail {

torch::Library& permanent_library(const char* name_space, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, name_space, key, __FILE__, __LINE__);
}

void add_fallback(const char* feature, c10::DispatchKey key, torch::CppFunction&& kernel) {
  try {
    permanent_library("_", key).fallback(std::move(kernel));
  } catch (const c10::Error& error) {
    fail(ErrorKind::other, feature,
         "LibTorch has a fallback for the dispatch key {} already, expected none: only one library of a program can "
         "register it. Do not link or load the other one, or do without this feature. LibTorch: {}",
         c10::toString(key), first_line(error.what_without_backtrace()));
  }
}

}  // namespace tessera::detail
