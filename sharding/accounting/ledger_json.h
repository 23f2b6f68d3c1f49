// A collective as JSON, and a timeline as a trace.
#pragma once

#include <boost/json/fwd.hpp>

#include "sharding/accounting/timeline.h"

namespace tessera::detail {

// All fields of a record, as CommLedger::to_json() writes them.
boost::json::object to_object(const CommRecord& record);
// As CommLedger::chrome_trace() gives it.
std::string chrome_trace_of(const Timeline& timeline);

}  // namespace tessera::detail
