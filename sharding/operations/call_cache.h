// Recent: a cache of what a call derives from its operands' types and options, for later calls of the same kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera::detail {

// The set-ups of the last kinds of calls of one thread (not thread-safe). A kind is identified by its parts, of which
// the first is a pointer to an operand's type; get() copies the parts only for a new kind.
template <class SetUp, class Type, class... Parts>
class Recent {
 public:
  // The set-up for these parts; `make()` makes it if they are new. The reference is valid until some others were made.
  template <class Make>
  const SetUp& get(const std::tuple<const Type* const&, const Parts&...>& parts, Make&& make) {
    Set& set = sets_[place_of(std::get<0>(parts))];
    for (const Kind& kind : set.kinds)
      if (kind.parts == parts) return kind.set_up;
    return set.keep({parts, make()});
  }

 private:
  struct Kind {
    std::tuple<const Type*, Parts...> parts;
    SetUp set_up;
  };

  struct Set {
    static constexpr size_t most = 8;
    std::vector<Kind> kinds;
    size_t oldest = 0;

    const SetUp& keep(Kind&& kind) {
      kinds.reserve(most);  // so that references stay valid
      if (kinds.size() < most) return kinds.emplace_back(std::move(kind)).set_up;
      Kind& place = kinds[std::exchange(oldest, (oldest + 1) % most)];
      place = std::move(kind);
      return place.set_up;
    }
  };

  static size_t place_of(const Type* type) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(type) >> 4) * 0x9E3779B9u >> 28;
  }

  std::array<Set, 16> sets_;
};

}  // namespace tessera::detail
