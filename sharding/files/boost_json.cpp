// Compiles Boost.JSON, and nothing else: a program's own copy replaces this member of the static library.
#include <boost/json/src.hpp>
