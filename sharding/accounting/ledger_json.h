// A collective as JSON.
#pragma once

#include <boost/json/fwd.hpp>

#include "sharding/accounting/ledger.h"

namespace tessera::detail {

// All fields of a record, as CommLedger::to_json() writes them.
boost::json::object to_object(const CommRecord& record);

}  // namespace tessera::detail
