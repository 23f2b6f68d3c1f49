// A program's own copies of the libraries that Tessera's static libraries contain.
#include <fmt/format-inl.h>

#include <boost/json/src.hpp>
