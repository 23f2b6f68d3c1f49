// Parses TESSERA_PLAIN.
#include "sharding/kernels/plain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::detail {
namespace {

constexpr const char* variable = "TESSERA_PLAIN";

constexpr std::array<std::string_view, 4> entry_names{"thread_pool", "matrix_products", "fused_bias", "staging_pool"};
static_assert(entry_names.size() == static_cast<size_t>(Kernel::staging_pool) + 1);

unsigned plain_entries() {
  if (const auto flag = known_flag(variable)) return *flag ? ~0U : 0U;
  unsigned entries = 0;
  for (const std::string_view name : split_text(std::getenv(variable), ",")) {
    const auto found = std::find(entry_names.begin(), entry_names.end(), name);
    if (found == entry_names.end())
      fail(ErrorKind::invalid_argument, variable, "\"{}\" given, expected 1 (all), 0 (none) or some of {}.", name,
           fmt::join(entry_names, ", "));
    entries |= 1U << (found - entry_names.begin());
  }
  return entries;
}

}  // namespace

bool uses_plain(Kernel kernel) {
  static const unsigned entries = plain_entries();
  return entries >> static_cast<unsigned>(kernel) & 1U;
}

}  // namespace tessera::detail
