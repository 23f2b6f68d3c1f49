// The exit status of a run that can be restarted.
#pragma once

namespace tessera {

// The exit status of a run that can continue if it is started again: EX_TEMPFAIL of sysexits.h.
inline constexpr int restart_status = 75;

}  // namespace tessera
