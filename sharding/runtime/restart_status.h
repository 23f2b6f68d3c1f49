// The exit status that asks for a restart.
#pragma once

namespace tessera {

// The exit status of a run that can continue if it is started again: EX_TEMPFAIL of sysexits.h.
inline constexpr int restart_status = 75;

}  // namespace tessera
