// dependent_false: false, for a static_assert in a function that only a mistaken call chooses.
#pragma once

namespace tessera::detail {

// Known to be false only where the function is instantiated: static_assert(dependent_false<Tree>, "tessera: ...").
template <class...>
inline constexpr bool dependent_false = false;

}  // namespace tessera::detail
