// Collectives as JSON, and as a trace for chrome://tracing and Perfetto.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <vector>

#include "sharding/accounting/ledger.h"

namespace tessera::detail {

// Returns all fields of a record, as CommLedger::to_json() writes them.
boost::json::object to_object(const CommRecord& record);
// Returns the trace that CommLedger::chrome_trace() documents.
std::string chrome_trace_of(const std::vector<CommRecord>& records);

}  // namespace tessera::detail
