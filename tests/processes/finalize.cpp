// Checks finalize() in several processes: all end together, and later communication is an Error.
#include <cstdio>
#include <string>

#include "sharding/base.h"
#include "sharding/operations.h"
#include "sharding/placement.h"
#include "sharding/runtime.h"

int main() {
  using namespace tessera;
  return run_program([] {
    const int n = process_count();
    const Mesh mesh = make_mesh({{"data", n}});
    const Array x = device_put(ones({4 * n}), NamedSharding(mesh, P{"data"}));
    const float total = redistribute(sum(x), NamedSharding(mesh, P{})).item<float>();
    finalize();
    finalize();
    try {
      make_mesh({{"data", n}});
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("[finalize]") != std::string::npos && total == static_cast<float>(4 * n)) return 0;
      std::fprintf(stderr, "%s\n", text.c_str());
    }
    return 1;
  });
}
