// never: false, for a static_assert in a function that only a mistaken call chooses.
#pragma once

namespace tessera::detail {

// Known to be false only where the function is instantiated: static_assert(never<Tree>, "tessera: ...").
template <class...>
inline constexpr bool never = false;

}  // namespace tessera::detail
