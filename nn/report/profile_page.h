// What the page of a report has of a profile.
#pragma once

#include <boost/json/fwd.hpp>

#include "nn/report/profile.h"

namespace tessera::nn::detail {

// The tables, and of the first processes one step each, the one of median length on process 0: its longest slices and
// all collectives. {"seconds", "steps", "mfu", "parts", "modules", "operations", "lines" (rows as [name, calls,
// seconds, whole]), "texts", "processes": [{"process", "seconds", "slices": [[begin, seconds, depth, part, name,
// module, file, line], ...], "transfers": [[begin, seconds, waited, kind, label, axes, path, bytes], ...]}]}, where
// part is the number of a row of "parts", texts are numbers, and moments are seconds since the step of process 0 began.
boost::json::object page_of(const ProfileReport& report);

}  // namespace tessera::nn::detail
