// What the handles of sources share, or the error of one that was moved from.
#pragma once

#include <memory>

#include "nn/tree.h"

namespace tessera::data::detail {

// What a source's handle points to. Error (bad_argument), with the source's name: it was moved into another.
template <class T>
const T& held(const std::shared_ptr<T>& shared, const char* source) {
  if (!shared) fail(ErrorKind::bad_argument, source, "this source was moved into another; use that one");
  return *shared;
}

}  // namespace tessera::data::detail
