// Interfaces for the conformance suite and the benchmark: parameters and keys without a program.
#pragma once

#include <string>

#include "atlasc/interface.hpp"

namespace conformance {

/// `levels` products at a ring of 2^log_degree; rotations by 1, 5, 64 and slots - 1 to the right
/// reach the top, one by 7 reaches level 1.
atlasc::Interface leveled(int log_degree, int levels, int special_primes);

/// The set fourteen_levels of the bootstrap, with rotations by 1 and 64 at level 14.
atlasc::Interface bootstrapped(int log_degree, const std::string& name = "fourteen_levels");

}  // namespace conformance
