// Fuzzes a launcher's environment, given as lines NAME=value.
// It is rejected with invalid_argument, or the index is below the count. Several processes also have a valid address.
#include <map>

#include "sharding/base/error.h"
#include "sharding/runtime/launcher_environment.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::map<std::string, std::string, std::less<>> variables;
  for (std::string_view rest = fuzz::text_of(data, size); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (const size_t equals = line.find('='); equals != line.npos)
      variables.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  try {
    const auto launch = tessera::detail::launch_of([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
    if (launch.index < 0 || launch.index >= launch.count) std::abort();
    if (launch.count > 1 && (launch.host.empty() || launch.port < 1 || launch.port > 65535)) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
